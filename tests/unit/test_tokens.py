"""Files of tokens, and the comparison."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tickpath.client import Tls, token_file
from tickpath.client.errors import CredentialsError
from tickpath.client.token import token_now
from tickpath.wire import Hello, encode_frame
from tickpath.wire.small_files import PEM_BYTES_MAX
from tickpath.wire.tokens import (
    FILE_BYTES_MAX,
    TOKENS_MAX,
    TokenError,
    digest_of,
    holds_token,
    is_one_of,
    read_digests,
    read_token,
)

OLD: Final = "the-old-token-of-desk-7"
NEW: Final = "the-new-token-of-desk-7"


def test_old_and_new_are_valid_as_long_as_the_file_lists_them() -> None:
    both = read_digests(f"# rotated in June\n{NEW}\n\n  {OLD}  \n")
    assert [is_one_of(token, both) for token in (OLD, NEW, "another-token-of-it", "")] == [True, True, False, False]
    assert read_token(f"# first\n{NEW}\n{OLD}") == NEW


def test_a_hash_stands_for_its_token() -> None:
    text = f"sha256:{hashlib.sha256(OLD.encode()).hexdigest().upper()}"
    assert read_digests(text) == (digest_of(OLD),)
    assert (holds_token(text), holds_token(f"{text}\n{NEW}")) == (False, True)
    with pytest.raises(TokenError, match="its hash"):
        read_token(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there are 0"),
        ("# nothing\n\n", "there are 0"),
        ("short", "line 1: a token of 16 to 2048"),
        ("x" * 2049, "it has 2049"),
        (f"{OLD}\nwith some spaces in it", "line 2: .* without spaces"),
        ("sha256:abc", "line 1: 64 hex"),
        ("\n".join(f"{OLD}-{n}" for n in range(TOKENS_MAX + 1)), f"there are {TOKENS_MAX + 1}"),
    ],
)
def test_what_is_no_file_of_tokens_is_refused_and_not_repeated(text: str, says: str) -> None:
    with pytest.raises(TokenError, match=says) as refused:
        read_digests(text)
    for line in text.splitlines():
        assert line.startswith(("sha256", "#")) or not line or line not in str(refused.value)


def test_a_hello_is_printed_without_its_token() -> None:
    hello = Hello(1, "desk", OLD)
    assert OLD not in repr(hello)
    assert OLD not in str(hello)
    assert OLD.encode() in encode_frame(hello)


def test_whatever_a_function_raises_is_said_as_one_kind_of_error() -> None:
    def ask_a_vault() -> str:
        raise LookupError("sealed")

    with pytest.raises(CredentialsError, match="LookupError: sealed"):
        token_now(ask_a_vault)
    assert token_now(lambda: OLD) == OLD


def _read_token(path: Path) -> object:
    return token_file(str(path))()


def _read_ca(path: Path) -> object:
    return Tls(ca=str(path)).context()


def _read_key(path: Path) -> object:
    return Tls(certificate=str(path), key=str(path)).context()


@pytest.mark.parametrize(
    ("read", "bytes_max"), [(_read_token, FILE_BYTES_MAX), (_read_ca, PEM_BYTES_MAX), (_read_key, PEM_BYTES_MAX)]
)
def test_what_stands_in_the_place_of_a_clients_file(
    read: Callable[[Path], object], bytes_max: int, tmp_path: Path
) -> None:
    """A pipe, at which a client would wait, and a file that fills its memory are refused before they are read."""
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "huge", "wb") as huge:
        huge.truncate(1 << 40)  # one hole: it takes no room here
    with open(tmp_path / "large", "wb") as large:
        large.truncate(bytes_max + 1)
    for name, says in {
        "pipe": "a file expected",
        ".": "Is a directory",
        "none": "No such file or directory",
        "huge": f"more than {bytes_max}",
        "large": f"more than {bytes_max}",
    }.items():
        with pytest.raises(CredentialsError) as refused:
            read(tmp_path / name)
        assert str(refused.value).replace(",", "").startswith(f"{tmp_path / name}: {says}")


def test_a_token_is_read_from_the_largest_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"{NEW}\n".ljust(FILE_BYTES_MAX, "#"))
    assert token_file(str(path))() == NEW
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(CredentialsError, match="a token of ASCII characters expected"):
        token_file(str(path))()
