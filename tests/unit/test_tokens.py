"""Files of tokens, and the comparison."""

import hashlib
from typing import Final

import pytest

from tickpath.client.errors import CredentialsError
from tickpath.client.token import token_now
from tickpath.wire import Hello, encode_frame
from tickpath.wire.tokens import (
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
