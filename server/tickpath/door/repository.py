"""Loading and unloading, through the core's admin socket, where the door was given it."""

import asyncio
from typing import Any, Final

import msgspec

from tickpath.client import BadValueError, ConnectError, ForbiddenError

# As `tickpath reload` waits: a reload may have to compile a model.
ANSWER_S_MAX: Final = 660.0
# The status of 64 models of many versions.
LINE_BYTES_MAX: Final = 1 << 20


class Repository:
    """What may be asked of the core's operator. `admin`: the path of its socket, or None: nothing. `token`: whose
    right to it the core is to look at; None: whoever comes may."""

    def __init__(self, admin: str | None, token: str | None = None) -> None:
        self._admin = admin
        self._token = token

    async def load(self, model: str) -> None:
        """Have what the model's files hold now served. Raises ForbiddenError, BadValueError, ConnectError."""
        await self._ask("reload", model)

    async def unload(self, model: str) -> None:
        """Have the whole model answer nobody. Raises the same."""
        await self._ask("unload", model)

    async def _ask(self, what: str, model: str) -> None:
        if self._admin is None:
            raise ForbiddenError(
                "this door may not load or unload: give it the core's admin socket (oip_admin of the configuration, "
                "`tickpath door --admin`), or use `tickpath reload`"
            )
        asked = {"do": what, "model": model} | ({} if self._token is None else {"token": self._token})
        reply = await _exchange(self._admin, asked)
        if not reply["done"]:
            raise BadValueError("; ".join(reply["text"]))


async def _exchange(admin: str, asked: dict[str, str]) -> dict[str, Any]:
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            reader, writer = await asyncio.open_unix_connection(admin, limit=LINE_BYTES_MAX)
            try:
                writer.write(msgspec.json.encode(asked) + b"\n")
                reply: dict[str, Any] = msgspec.json.decode(await reader.readline())
                return reply
            finally:
                writer.close()
    except (OSError, TimeoutError, msgspec.DecodeError) as error:
        raise ConnectError(f"the core's admin socket {admin}: {error or 'no answer'}") from None
