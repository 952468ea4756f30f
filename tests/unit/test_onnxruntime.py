"""What the CPU engine takes from onnxruntime that is not promised, and how it does without."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tests.onnx_models import one_node, save

from tickpath.engines import EngineFailedError
from tickpath.engines.onnxruntime import OnnxRuntimeGraph


class Private:
    """A wrapper of the runtime's with only what is public."""

    def __init__(self, wrapped: onnxruntime.InferenceSession, *public: str) -> None:
        for name in public:
            setattr(self, name, getattr(wrapped, name))


def session_of(folder: Path, operator: str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(save(one_node(operator, np.float32, [2]), folder))


@pytest.mark.parametrize("hidden", [False, True])
def test_a_graph_runs_without_the_private_members_too(tmp_path: Path, hidden: bool) -> None:
    session = session_of(tmp_path, "Neg")
    x, y = np.array([1, 2], np.float32), np.zeros(2, np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, x.dtype, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, y.dtype, y.shape, y.ctypes.data)
    graph = OnnxRuntimeGraph(Private(session, "run_with_iobinding") if hidden else session, binding, (x, y))
    for value in (3.0, 4.0):
        x[:] = value
        graph.replay()
        assert y.tolist() == [-value, -value]


def test_a_failure_is_the_engines_without_them_too(tmp_path: Path) -> None:
    session = session_of(tmp_path, "Neg")
    graph = OnnxRuntimeGraph(Private(session, "run_with_iobinding"), session.io_binding(), ())
    with pytest.raises(EngineFailedError, match="onnxruntime"):
        graph.replay()
