"""One way to call both pools, so that one test body fits: `Pool`, and `AsyncPool` on a loop in a thread."""

from collections.abc import Callable
from typing import Any, TypeAlias

from tests.unit.client.callers import LOOPS, LoopThread
from tests.unit.client.scripted import Address

from tickpath.client import AsyncPool, Prediction, RefusedError

MakePool: TypeAlias = Callable[..., Any]


class AsyncPoolCaller:
    """AsyncPool with the face of Pool."""

    def __init__(self, loop: str, addresses: list[Address], **options: Any) -> None:
        self.thread = LoopThread(LOOPS[loop])
        self._options = addresses, options
        self.pool: AsyncPool

    def __enter__(self) -> "AsyncPoolCaller":
        async def opened() -> AsyncPool:
            pool = AsyncPool(self._options[0], **self._options[1])
            await pool.connect()
            return pool

        try:
            self.pool = self.thread.run(opened())
        except BaseException:
            self.thread.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.run(self.pool.close())
        self.thread.stop()

    @property
    def servers(self) -> Any:
        return self.pool.servers

    def infer(self, model: str, inputs: Any, **options: Any) -> Prediction:
        return self.thread.run(self.pool.infer(model, inputs, **options))

    def infer_many(self, model: str, inputs: Any, **options: Any) -> list[Prediction | RefusedError]:
        return self.thread.run(self.pool.infer_many(model, inputs, **options))
