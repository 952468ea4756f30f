"""What an execution context of torch asks of it on a CUDA device, where there is none: the order of the calls."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tickpath.engines import EngineFailedError, EngineSpec
from tickpath.engines.torch_cuda import TorchContext


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls, as they come."""
    calls: list[str] = []

    @contextmanager
    def use_mem_pool(_pool: object) -> Iterator[None]:
        calls.append("pool")
        yield
        calls.append("no pool")

    monkeypatch.setattr(torch.cuda, "MemPool", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "use_mem_pool", use_mem_pool)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "get_stream_from_external", lambda stream, _device: stream)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: calls.append("clear"), raising=False)
    return calls


def context_of(program: object) -> TorchContext:
    made: Any = program
    return TorchContext(made, EngineSpec((), (), "torch", "float32", "0" * 64), 1)


def test_what_cublas_works_in_is_of_the_contexts_pool(asked: list[str]) -> None:
    """And left to nobody."""

    def forward() -> Sequence[torch.Tensor]:
        asked.append("run")
        return ()

    assert context_of(SimpleNamespace(forward=forward)).enqueue(1)
    assert asked == ["pool", "clear", "run", "clear", "no pool"]


def test_also_where_the_run_fails(asked: list[str]) -> None:
    def forward() -> Sequence[torch.Tensor]:
        raise RuntimeError("an operator")

    with pytest.raises(EngineFailedError, match="an operator"):
        context_of(SimpleNamespace(forward=forward)).enqueue(1)
    assert asked == ["pool", "clear", "clear"]
