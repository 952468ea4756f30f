"""The REST side: which path is what, on aiohttp's server."""

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web

from tickpath.client import BadFrameError, BadMessageError, TickpathError
from tickpath.door import describe, rest_body
from tickpath.door.callers import Callers
from tickpath.door.services import Services
from tickpath.door.statuses import http_status

log = logging.getLogger(__name__)

# From a request's head to the last byte of its body: 64 MiB take a second at 0.5 Gbit/s. Who is slower is cut off.
BODY_S_MAX: Final = 10.0
# The same numbers in JSON take more bytes: `false, ` has 7 for 1, a float32 up to 24 for 4, a float64 up to 26 for 8.
JSON_BYTES_EACH: Final = 8
# Names, shapes and parameters beside the numbers.
HEAD_BYTES_MAX: Final = 64 * 1024
# What fits into one packet gains nothing by being smaller.
COMPRESS_BYTES_MIN: Final = 1400

# What a model's paths end with.
OF_MODEL: Final = ("ready", "config", "stats")

JSON: Final = "application/json"


class Rest:
    """Answers requests of HTTP."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request. Whatever is wrong with it is a status and a JSON body with an `error`."""
        try:
            response = await self._identified(request)
        except TickpathError as error:
            response = _fail(http_status(error), str(error))
            if response.status == HTTPStatus.UNAUTHORIZED:
                response.headers["WWW-Authenticate"] = "Bearer"
        except TimeoutError:
            response = _fail(HTTPStatus.REQUEST_TIMEOUT, f"the body did not come within {BODY_S_MAX:g} s")
            response.force_close()
        except ConnectionError:  # it has left
            raise
        except Exception:
            log.exception("a fault of the door")
            return _fail(
                HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of the door, which its log describes: please report it"
            )
        return response

    async def _identified(self, request: web.BaseRequest) -> web.Response:
        """Probes are answered whoever asks."""
        match request.path.strip("/").split("/"):
            case ["v2", "health", "live"] if request.method in ("GET", "HEAD"):
                return _say({"live": True})
            case ["v2", "health", "ready"] if request.method in ("GET", "HEAD"):
                await self._callers.ready()
                return _say({"ready": True})
        async with self._callers.serving(request.headers.get("Authorization")) as services:
            return await _Caller(services).route(request)


class _Caller:
    """What one caller may have answered."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def route(self, request: web.BaseRequest) -> web.Response:
        match request.path.strip("/").split("/"):
            case ["v2", *rest] if request.method in ("GET", "HEAD"):
                found = await self._get(rest)
            case ["v2", "models", name, "infer"] if request.method == "POST":
                return await self._infer(request, name, "")
            case ["v2", "models", name, "versions", version, "infer"] if request.method == "POST":
                return await self._infer(request, name, version)
            case ["v2", "repository", *rest] if request.method == "POST":
                found = await self._repository(rest)
            case _:
                found = None
        return _not_here(request) if found is None else _say(found)

    async def _get(self, path: list[str]) -> Any:
        """None where there is no such path."""
        found: Any = None
        match path:
            case []:
                found = self._services.server()
            case ["models", "stats"]:
                found = {"model_stats": await self._services.statistics("", "")}
            case ["models", name, "versions", version, *what]:
                found = await self._of_model(name, version, what)
            case ["models", name, *what]:
                found = await self._of_model(name, "", what)
        return found

    async def _of_model(self, name: str, version: str, what: list[str]) -> Any:
        match what:
            case []:
                return await self._services.metadata(name, version)
            case ["ready"]:
                return {"name": (await self._services.upstream.fresh_model(name, version)).name, "ready": True}
            case ["config"]:
                return describe.config(await self._services.upstream.fresh_model(name, version))
            case ["stats"]:
                return {"model_stats": await self._services.statistics(name, version)}
        return None

    async def _repository(self, path: list[str]) -> Any:
        match path:
            case ["index"]:
                return describe.index(await self._services.upstream.listing())
            case ["models", name, "load"]:
                await self._services.load(name)
                return {}
            case ["models", name, "unload"]:
                await self._services.unload(name)
                return {}
        return None

    async def _infer(self, request: web.BaseRequest, name: str, version: str) -> web.Response:
        upstream = self._services.upstream
        model = await upstream.model(name, version)
        limits = await upstream.limits()
        data = await _read(request, JSON_BYTES_EACH * limits.frame_bytes_max + HEAD_BYTES_MAX)
        body, question = rest_body.read(data, request.headers.get(rest_body.HEAD_BYTES), model, version)
        answer = await self._services.inference.answer(question)
        parts, head_bytes = rest_body.write(body, model.name, answer)
        response = _bytes(b"".join(parts), head_bytes)
        if response.content_length and response.content_length >= COMPRESS_BYTES_MIN:
            _compress(response, request.headers.get("Accept-Encoding", ""))
        return response


async def _read(request: web.BaseRequest, bytes_max: int) -> bytes:
    """The body, decompressed. Raises BadFrameError, BadMessageError, TimeoutError."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    parts: list[bytes] = []
    left = bytes_max if (request.content_length or 0) <= bytes_max else -1
    try:
        async with asyncio.timeout(BODY_S_MAX):
            while left >= 0 and (part := await request.content.readany()):
                parts.append(part)
                left -= len(part)
    except web.RequestPayloadError as error:
        raise BadMessageError(f"the body can't be read: {' '.join(str(error).split())[:200]}") from None
    if left < 0:
        raise BadFrameError(f"a body of at most {bytes_max} bytes, unpacked, expected; more came: send fewer rows")
    return b"".join(parts)


def _compress(response: web.Response, accepted: str) -> None:
    for coding in (web.ContentCoding.gzip, web.ContentCoding.deflate):
        if coding.value in accepted:
            response.enable_compression(coding)
            return


def _not_here(request: web.BaseRequest) -> web.Response:
    told = f"no {request.method[:20]} {request.path[:200]} here: see docs/DOOR.md"
    methods = _methods(request.path.strip("/").split("/"))
    if not methods:
        return _fail(HTTPStatus.NOT_FOUND, told)
    response = _fail(HTTPStatus.METHOD_NOT_ALLOWED, f"{told}; it takes {methods}")
    response.headers["Allow"] = methods
    return response


def _methods(path: list[str]) -> str:
    """Those that a path takes; empty where there is no such path."""
    match path:
        case ["v2", "repository", "index"] | ["v2", "repository", "models", _, "load" | "unload"]:
            return "POST"
        case ["v2", "models", _, "infer"] | ["v2", "models", _, "versions", _, "infer"]:
            return "POST"
        case ["v2"] | ["v2", "health", "live" | "ready"] | ["v2", "models", _] | ["v2", "models", _, "versions", _]:
            return "GET, HEAD"
        case ["v2", "models", _, what] | ["v2", "models", _, "versions", _, what] if what in OF_MODEL:
            return "GET, HEAD"
    return ""


def _bytes(body: bytes, head_bytes: int) -> web.Response:
    if head_bytes:
        headers: Mapping[str, str] = {rest_body.HEAD_BYTES: str(head_bytes)}
        return web.Response(body=body, content_type="application/octet-stream", headers=headers)
    return web.Response(body=body, content_type=JSON)


def _say(values: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(values), content_type=JSON)


def _fail(status: HTTPStatus, error: str) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode({"error": error}), content_type=JSON)
