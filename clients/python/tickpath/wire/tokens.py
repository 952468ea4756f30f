"""Bearer tokens: how a file holds them, and how one that came is compared. Pure.

A file of tokens has one a line; empty lines and lines that begin with # say nothing. A line is a token, or
`sha256:` and its hash in hex, from which nobody can make the token again. A server keeps hashes only.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final

from tickpath.wire.messages import TOKEN_CHARS_MAX

# Below this somebody could try them all; 32 hex digits, or 22 characters of base64, hold 128 bits.
TOKEN_CHARS_MIN: Final = 16
# Old, new, and those of a desk whose members have one each.
TOKENS_MAX: Final = 64
FILE_BYTES_MAX: Final = 256 * 1024
HASH_PREFIX: Final = "sha256:"
HASH_PATTERN: Final = r"^[0-9a-fA-F]{64}\Z"

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class TokenError(Exception):
    """A file of tokens can't be read as one. The text names the line and never what stands there."""


def digest_of(token: str) -> bytes:
    """What is kept and compared instead of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def read_digests(text: str) -> tuple[bytes, ...]:
    """The hashes of all tokens in a file's text. Raises TokenError."""
    found = []
    for number, line in _lines(text):
        if line.startswith(HASH_PREFIX):
            digits = line.removeprefix(HASH_PREFIX).strip()
            if not re.match(HASH_PATTERN, digits):
                raise TokenError(f"line {number}: 64 hex digits expected behind {HASH_PREFIX}")
            found.append(bytes.fromhex(digits))
        else:
            found.append(digest_of(_checked(number, line)))
    if not 0 < len(found) <= TOKENS_MAX:
        raise TokenError(f"1 to {TOKENS_MAX} tokens expected, one a line; there are {len(found)}")
    return tuple(found)


def read_token(text: str) -> str:
    """The token that a client sends: the first of its file. Raises TokenError."""
    for number, line in _lines(text):
        if line.startswith(HASH_PREFIX):
            raise TokenError(f"line {number}: a token expected, here is its hash, which only a server can use")
        return _checked(number, line)
    raise TokenError("a token expected, there is none")


def holds_token(text: str) -> bool:
    """Whether the file holds a token itself, so that who may read it may use it."""
    return any(not line.startswith(HASH_PREFIX) for _, line in _lines(text))


def is_one_of(token: str, digests: Iterable[bytes]) -> bool:
    """Whether a token is known. How long that takes says nothing of how much of it was right, nor which it was."""
    digest, found = digest_of(token), False
    for known in digests:
        found |= hmac.compare_digest(digest, known)
    return found


def _lines(text: str) -> list[tuple[int, str]]:
    stripped = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in stripped if line and not line.startswith("#")]


def _checked(number: int, line: str) -> str:
    if not TOKEN_CHARS_MIN <= len(line) <= TOKEN_CHARS_MAX:
        raise TokenError(
            f"line {number}: a token of {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} characters expected, it has {len(line)}"
        )
    if not _TOKEN.fullmatch(line):
        raise TokenError(f"line {number}: a token of ASCII characters without spaces expected, it has others")
    return line
