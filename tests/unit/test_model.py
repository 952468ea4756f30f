"""What a model must keep to so that every client can ask it: the largest request and the largest reply have a bound."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tests.onnx_models import constant, model, save, value

from tickpath.engines import ModelRefusedError
from tickpath.server.config import ModelConfig
from tickpath.server.model import prepare_model, reply_bytes_max
from tickpath.wire import PREFIX_BYTES, Result, TensorInfo, encode_frame

CLOCK_MAX = 2**63 - 1


def wide(folder: Path, elements: int) -> Path:
    """One number in, so many out."""
    nodes = [helper.make_node("Tile", ["x", "repeats"], ["y"])]
    inputs, outputs = [value("x", np.float32, ["N", 1])], [value("y", np.float32, ["N", elements])]
    return save(model(nodes, inputs, outputs, [constant("repeats", [1, elements], np.int64)]), folder)


@pytest.mark.parametrize("rows", [1, 8])
def test_the_largest_reply(rows: int) -> None:
    tensor = TensorInfo("y", "float32", (5, 1000), 0)
    outputs = [memoryview(bytes(tensor.bytes_at(rows)))] * 40
    reply = encode_frame(Result(2**64 - 1, "v" * 64, outputs, (CLOCK_MAX,) * 6, 2**64 - 1, 2**64 - 1))
    largest = reply_bytes_max([tensor] * 40, rows)
    assert len(reply) - PREFIX_BYTES <= largest <= len(reply) + 200


def test_a_reply_that_no_client_takes_is_refused_at_load(tmp_path: Path) -> None:
    """At 8 rows it is 80 MB; half of that is served."""
    path = str(wide(tmp_path, 2_500_000))
    with pytest.raises(ModelRefusedError, match=r"a reply of 8 rows is 80000\d{3} bytes, clients take 67108864"):
        prepare_model(ModelConfig(path, "wide", executor="inline"), None, 1 << 20)
    prepare_model(ModelConfig(path, "wide", buckets=(4,), executor="inline"), None, 1 << 20).engine.close()
