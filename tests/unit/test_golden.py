"""The golden sample on disk: what fits is read as it was written, and what does not is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.numpy_engine import tensor

from tickpath.engines import EngineSpec, ModelRefusedError
from tickpath.server.golden import GoldenSample, read_golden, read_inputs, write_golden

X = np.arange(12, dtype=np.float32).reshape(4, 3)
STATE = np.arange(8, dtype=np.float32).reshape(1, 4, 2)
RATE = np.array(16000, np.int64)
RIGHT: dict[str, Any] = {"x": X, "in:state": STATE, "out:state": -STATE}

SPEC = EngineSpec(
    inputs=(
        tensor("x", (1, 3)),
        tensor("state", (1, 1, 2), axis=1),
        tensor("rate", (), axis=None, dtype=np.int64, default=np.array(8000, np.int64)),
    ),
    outputs=(tensor("state", (1, 1, 2), axis=1),),
    runtime="numpy",
    precision="float32",
    sha256="0" * 64,
)


def saved(folder: Path, arrays: dict[str, Any]) -> Path:
    np.savez(folder / "golden.npz", **arrays)
    return folder / "golden.npz"


def test_a_sample_is_read_as_it_was_written(tmp_path: Path) -> None:
    for rate in (RATE, None):
        sample = GoldenSample(4, (X, STATE, rate), (-STATE,))
        write_golden(tmp_path / "g.npz", SPEC, sample)
        again = read_golden(tmp_path / "g.npz", SPEC)
        assert again.rows == 4
        assert (again.inputs[2] is None) == (rate is None)
        np.testing.assert_equal([*again.inputs[:2], *again.outputs], [X, STATE, -STATE])


def test_names_and_sides(tmp_path: Path) -> None:
    sample = read_golden(saved(tmp_path, RIGHT), SPEC)
    np.testing.assert_equal([*sample.inputs, *sample.outputs], [X, STATE, None, -STATE])
    sides = {"in:x": X, "in:state": STATE, "in:rate": RATE, "out:state": -STATE}
    assert read_golden(saved(tmp_path, sides), SPEC).inputs[2] == 16000


def test_inputs_alone(tmp_path: Path) -> None:
    inputs, rows = read_inputs(saved(tmp_path, {"x": X, "in:state": STATE}), SPEC)
    assert rows == 4
    np.testing.assert_equal(list(inputs), [X, STATE, None])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"x": None}, r"no array for input 'x', float32\[N,3\]: add one; it has in:state, out:state"),
        ({"out:state": None}, r"no array for output 'state'"),
        ({"y": X}, r"'y' is no input and no output of the model, which is x float32\[N,3\], .* -> state"),
        ({"out:x": X}, r"'out:x' is no input and no output"),
        ({"state": STATE}, r"'state' is an input and an output: name them in:state and out:state"),
        ({"x": X.astype(np.float64)}, r"'x' is float64\[4, 3\], the model has float32\[N,3\]"),
        ({"x": X.T}, r"'x' is float32\[3, 4\], the model has float32\[N,3\]"),
        ({"x": X[:0]}, r"'x' is float32\[0, 3\]"),
        ({"x": X[0]}, r"'x' is float32\[3\]"),
        ({"rate": np.zeros(2, np.int64)}, r"'rate' is int64\[2\], the model has int64\[\]"),
        ({"x": X[:3]}, r"same number of rows: 'x' has 3, 'state' has 4"),
        ({"out:state": STATE[:, :3]}, r"same number of rows"),
        ({"x": np.array([{}])}, "no whole .npz file of plain arrays"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    arrays = {name: array for name, array in (RIGHT | change).items() if array is not None}
    path = saved(tmp_path, arrays)
    with pytest.raises(ModelRefusedError, match=f"^{path}: .*{reason}"):
        read_golden(path, SPEC)


def test_what_is_no_npz_file(tmp_path: Path) -> None:
    path = saved(tmp_path, RIGHT)
    whole = path.read_bytes()
    for content in (b"", b"<html>", whole[:100], whole[: len(whole) // 2], whole[:-1], b"\x93NUMPY"):
        path.write_bytes(content)
        with pytest.raises(ModelRefusedError, match=f"^{path}: no whole .npz file"):
            read_golden(path, SPEC)
    np.save(tmp_path / "one.npy", X)
    with pytest.raises(ModelRefusedError, match=r"no whole .npz file"):
        read_golden(tmp_path / "one.npy", SPEC)
    with pytest.raises(ModelRefusedError, match="can't be read: No such file"):
        read_golden(tmp_path / "none.npz", SPEC)


def test_a_compressed_member_that_is_damaged_is_no_sample(tmp_path: Path) -> None:
    path = tmp_path / "golden.npz"
    np.savez_compressed(path, **RIGHT)
    whole = path.read_bytes()
    start = 30 + sum(int.from_bytes(whole[at : at + 2], "little") for at in (26, 28))  # behind its name and extras
    directory = whole.index(b"PK\x01\x02")
    for at, damage in ((start, b"\xff" * 8), (directory + 8, b"\x01")):  # no deflated data; said to be encrypted
        path.write_bytes(whole[:at] + damage + whole[at + len(damage) :])
        with pytest.raises(ModelRefusedError, match=r"no whole .npz file"):
            read_golden(path, SPEC)


def test_a_damaged_member_is_no_sample(tmp_path: Path) -> None:
    path = saved(tmp_path, RIGHT)
    content = bytearray(path.read_bytes())
    content[content.index(X.tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelRefusedError, match=r"no whole .npz file"):
        read_golden(path, SPEC)
