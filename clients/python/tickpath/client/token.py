"""The token that a client brings: as it is, or from where it is asked for at each connection, so that a new one is
taken up without a restart."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from tickpath.client.errors import CredentialsError
from tickpath.wire.tokens import TokenError, read_token

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
    """Reads the first token of a file each time. Raises CredentialsError, then."""

    def read() -> str:
        try:
            return read_token(Path(path).read_text("ascii"))
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
