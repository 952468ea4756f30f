"""One way to call all clients, so that one test body fits: `Client`, and `AsyncClient` on a loop in a thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

import uvloop

from tickpath.client import AsyncClient, Client, Prediction, RefusedError
from tickpath.client.codec import Inputs
from tickpath.wire import Limits, ModelInfo

T = TypeVar("T")


class LoopThread:
    """An event loop that always runs."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.loop = new_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def stop(self) -> None:
        self.run(self.loop.shutdown_asyncgens())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class AsyncCaller:
    """AsyncClient with the face of Client."""

    def __init__(
        self, new_loop: Callable[[], asyncio.AbstractEventLoop], address: str | tuple[str, int], **options: Any
    ) -> None:
        self.thread = LoopThread(new_loop)
        self.client = AsyncClient(address, **options)

    def __enter__(self) -> Self:
        try:
            self.connect()
        except BaseException:
            self.thread.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        finally:
            self.thread.stop()

    def connect(self) -> None:
        self.thread.run(self.client.connect())

    def close(self) -> None:
        self.thread.run(self.client.close())

    @property
    def limits(self) -> Limits:
        return self.client.limits

    @property
    def server(self) -> str:
        return self.client.server

    def models(self) -> tuple[ModelInfo, ...]:
        return self.thread.run(self.client.models())

    def model(self, name: str) -> ModelInfo:
        return self.thread.run(self.client.model(name))

    def ping(self) -> int:
        return self.thread.run(self.client.ping())

    def infer(self, model: str, inputs: Inputs, **options: Any) -> Prediction:
        return self.thread.run(self.client.infer(model, inputs, **options))

    def infer_many(self, model: str, inputs: Iterable[Inputs], **options: Any) -> list[Prediction | RefusedError]:
        return self.thread.run(self.client.infer_many(model, inputs, **options))


Caller: TypeAlias = Client | AsyncCaller
MakeCaller: TypeAlias = Callable[..., Caller]


def _asyncio(address: str | tuple[str, int], **options: Any) -> Caller:
    return AsyncCaller(asyncio.SelectorEventLoop, address, **options)


def _uvloop(address: str | tuple[str, int], **options: Any) -> Caller:
    return AsyncCaller(uvloop.new_event_loop, address, **options)


CALLERS: Final[dict[str, MakeCaller]] = {"blocking": Client, "asyncio": _asyncio, "uvloop": _uvloop}
LOOPS: Final[dict[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
