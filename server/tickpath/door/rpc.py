"""The gRPC side, on grpc.aio."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError

from tickpath.client import BadMessageError, ConnectError, OverloadedError, TickpathError, UnknownModelError
from tickpath.door import describe, grpc_body
from tickpath.door.callers import Callers
from tickpath.door.connections import GRPC_CONNECTIONS_MAX, GRPC_HANDSHAKE_S_MAX, IDLE_S_MAX
from tickpath.door.grpc_health import health_handler
from tickpath.door.proto import open_inference_pb2 as messages
from tickpath.door.services import Services
from tickpath.door.statuses import grpc_status

log = logging.getLogger(__name__)

SERVICE: Final = "inference.GRPCInferenceService"
# More than the core takes from one client, so that it is the core's answer that is seen, and few enough for messages
# of the largest size.
CALLS_MAX: Final = 128
# The library counts a message's bytes in 32 bits, one for the sign.
GRPC_BYTES_MAX: Final = 2**31 - 1
# Beside them, for probes and for those who are told that there is no place. grpc's own refusal knows neither.
SPARE_CALLS: Final = 32

Method = Callable[["_Caller", Any], Awaitable[Any]]


class Rpc:
    """Answers the calls of GRPCInferenceService."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._under_way = 0

    def handler(self) -> grpc.GenericRpcHandler:
        """For a server of grpc.aio."""
        handlers = {name: self._unary(name, method) for name, method in METHODS.items()}
        # Probes are answered whoever asks.
        handlers["ServerLive"] = self._answering("ServerLive", self._live)
        handlers["ServerReady"] = self._answering("ServerReady", self._ready)
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self._stream,
            response_serializer=messages.ModelStreamInferResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _unary(self, name: str, method: Method) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            async with self._serving(context) as services:
                return await method(_Caller(services), request)

        return self._answering(name, answer)

    def _answering(self, name: str, answer: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        asked, answered = getattr(messages, f"{name}Request"), getattr(messages, f"{name}Response")

        async def call(data: bytes, context: Any) -> Any:
            try:
                return await answer(_read(asked, data), context)
            except TickpathError as error:
                await context.abort(grpc_status(error), str(error))
            except Exception:
                log.exception("a fault of the door")
                await context.abort(grpc.StatusCode.INTERNAL, "a fault of the door, which its log describes")

        return grpc.unary_unary_rpc_method_handler(call, response_serializer=answered.SerializeToString)

    @asynccontextmanager
    async def _serving(self, context: Any) -> AsyncIterator[Services]:
        if self._under_way >= CALLS_MAX:
            raise OverloadedError(f"{CALLS_MAX} calls are under way here, open streams among them: come again")
        given = {key: value for key, value in context.invocation_metadata() if key == "authorization"}
        self._under_way += 1
        try:
            async with self._callers.serving(given.get("authorization")) as services:
                yield services
        finally:
            self._under_way -= 1

    async def _live(self, _: messages.ServerLiveRequest, __: Any) -> messages.ServerLiveResponse:
        return messages.ServerLiveResponse(live=True)

    async def _ready(self, _: messages.ServerReadyRequest, __: Any) -> messages.ServerReadyResponse:
        try:
            await self._callers.ready()
        except ConnectError:
            return messages.ServerReadyResponse(ready=False)
        return messages.ServerReadyResponse(ready=True)

    async def _stream(
        self, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[messages.ModelStreamInferResponse]:
        try:
            async with self._serving(context) as services:
                async for answered in _Caller(services).stream(requests):
                    yield answered
        except TickpathError as error:
            await context.abort(grpc_status(error), str(error))


class _Caller:
    """What one caller may have answered."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def server_metadata(self, _: messages.ServerMetadataRequest) -> messages.ServerMetadataResponse:
        return messages.ServerMetadataResponse(**self._services.server())

    async def model_ready(self, request: messages.ModelReadyRequest) -> messages.ModelReadyResponse:
        try:
            await self._services.upstream.fresh_model(request.name, request.version)
        except (ConnectError, UnknownModelError):
            return messages.ModelReadyResponse(ready=False)
        return messages.ModelReadyResponse(ready=True)

    async def model_metadata(self, request: messages.ModelMetadataRequest) -> messages.ModelMetadataResponse:
        return messages.ModelMetadataResponse(**await self._services.metadata(request.name, request.version))

    async def model_config(self, request: messages.ModelConfigRequest) -> messages.ModelConfigResponse:
        model = await self._services.upstream.fresh_model(request.name, request.version)
        return messages.ModelConfigResponse(config=ParseDict(describe.config(model), messages.ModelConfig()))

    async def model_statistics(self, request: messages.ModelStatisticsRequest) -> messages.ModelStatisticsResponse:
        found = await self._services.statistics(request.name, request.version)
        return messages.ModelStatisticsResponse(model_stats=found)

    async def infer(self, request: messages.ModelInferRequest) -> messages.ModelInferResponse:
        model = await self._services.upstream.model(request.model_name, request.model_version)
        answer = await self._services.inference.answer(grpc_body.read(request, model))
        return grpc_body.write(request, answer)

    async def stream(self, requests: AsyncIterator[bytes]) -> AsyncIterator[messages.ModelStreamInferResponse]:
        """One answer for each request, in their order; what is refused does not end the stream."""
        async for data in requests:
            request = messages.ModelInferRequest()
            try:
                request = _read(messages.ModelInferRequest, data)
                answered = await self.infer(request)
            except TickpathError as error:
                # An empty answer beside it, which carries the id that the client waits for.
                yield messages.ModelStreamInferResponse(
                    error_message=str(error), infer_response=messages.ModelInferResponse(id=request.id)
                )
            else:
                yield messages.ModelStreamInferResponse(infer_response=answered)

    async def repository_index(self, _: messages.RepositoryIndexRequest) -> messages.RepositoryIndexResponse:
        return messages.RepositoryIndexResponse(models=describe.index(await self._services.upstream.listing()))

    async def load(self, request: messages.RepositoryModelLoadRequest) -> messages.RepositoryModelLoadResponse:
        await self._services.load(request.model_name)
        return messages.RepositoryModelLoadResponse()

    async def unload(self, request: messages.RepositoryModelUnloadRequest) -> messages.RepositoryModelUnloadResponse:
        await self._services.unload(request.model_name)
        return messages.RepositoryModelUnloadResponse()


METHODS: Final[dict[str, Method]] = {
    "ServerMetadata": _Caller.server_metadata,
    "ModelReady": _Caller.model_ready,
    "ModelMetadata": _Caller.model_metadata,
    "ModelConfig": _Caller.model_config,
    "ModelStatistics": _Caller.model_statistics,
    "ModelInfer": _Caller.infer,
    "RepositoryIndex": _Caller.repository_index,
    "RepositoryModelLoad": _Caller.load,
    "RepositoryModelUnload": _Caller.unload,
}


def _read(kind: Any, data: bytes) -> Any:
    """The message that these bytes are. (grpc would log a traceback for those that are none.)"""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise BadMessageError(f"expected a {kind.DESCRIPTOR.name}: {error}") from None


def make_server(callers: Callers, message_bytes_max: int) -> grpc.aio.Server:
    """Not listening yet."""
    message_bytes_max = min(message_bytes_max, GRPC_BYTES_MAX)
    options = [
        ("grpc.so_reuseport", 0),  # a port that is taken is taken
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", message_bytes_max),
        ("grpc.max_concurrent_streams", CALLS_MAX),
        ("grpc.max_allowed_incoming_connections", GRPC_CONNECTIONS_MAX),
        ("grpc.server_handshake_timeout_ms", int(GRPC_HANDSHAKE_S_MAX * 1e3)),
        ("grpc.max_connection_idle_ms", int(IDLE_S_MAX * 1e3)),
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=CALLS_MAX + SPARE_CALLS)
    server.add_generic_rpc_handlers([Rpc(callers).handler(), health_handler(callers, SERVICE)])
    return server
