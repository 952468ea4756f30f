"""The token that a client brings: as it is, or from where it is asked for at each connection, so that a new one is
taken up without a restart."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from tickpath.client.errors import CredentialsError
from tickpath.wire.small_files import read_small
from tickpath.wire.tokens import FILE_BYTES_MAX, TokenError, read_token

TOKEN_VARIABLE: Final = "TICKPATH_TOKEN"

Token: TypeAlias = str | Callable[[], str]


def token_now(token: Token) -> str:
    """The token for a new connection. Raises CredentialsError, whatever a function of the caller's raises: where a pool
    connects on its own, nobody would hear of anything else."""
    if isinstance(token, str):
        return token
    try:
        return token()
    except CredentialsError:
        raise
    except Exception as error:
        raise CredentialsError(f"the token could not be had: {type(error).__name__}: {error}") from error


def token_file(path: str) -> Callable[[], str]:
    """Reads the first token of a file each time. Raises CredentialsError, then; also of a pipe, which could keep it
    waiting, and of a file of more than FILE_BYTES_MAX bytes."""

    def read() -> str:
        try:
            data, _ = read_small(Path(path), FILE_BYTES_MAX)
            if len(data) > FILE_BYTES_MAX:
                raise TokenError(f"more than {FILE_BYTES_MAX} bytes: a token expected")
            return read_token(data.decode("ascii"))
        except OSError as error:
            raise CredentialsError(f"{path}: {error.strerror}") from None
        except (TokenError, UnicodeDecodeError) as error:
            raise CredentialsError(
                f"{path}: {error if isinstance(error, TokenError) else 'a token of ASCII characters expected'}"
            ) from None

    return read


def token_from(path: str | None) -> Token:
    """From this file, else from TICKPATH_TOKEN; empty where there is neither."""
    return os.environ.get(TOKEN_VARIABLE, "") if path is None else token_file(path)
