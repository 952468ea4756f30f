"""How far an answer may be from the right one, and that every bucket is compared, full and padded."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.numpy_engine import Compute, NumpyEngine, tensor
from tests.onnx_models import save
from tests.repositories import scale

from tickpath.engines import Array, ModelRefusedError
from tickpath.engines.load import load
from tickpath.graphs import Slot
from tickpath.server.config import ModelConfig
from tickpath.server.golden import GoldenSample, write_golden
from tickpath.server.verification import Report, Tolerance, answers, compare, make_golden, verify

Y = tensor("y", (1, 2))
RIGHT = np.array([[1, 1000], [2, 0], [3, -5]], np.float32)
BUCKETS = (1, 2, 4)


def triple(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    np.multiply(inputs[0], 3, out=outputs[0])


def wrong_at(bucket: int) -> Compute:
    """Right in all other buckets."""

    def compute(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        triple(inputs, outputs)
        if len(inputs[0]) == bucket:
            outputs[0][-1] += 1

    return compute


def engine_of(compute: Compute) -> NumpyEngine:
    return NumpyEngine([tensor("x", (1, 3))], [tensor("y", (1, 3))], compute)


def verify_files(folder: Path, compute: Compute, **settings: float | str) -> Report:
    """What a load of the `model.onnx` in this folder would see, had another engine compiled it to `compute`."""
    engine = engine_of(compute)
    config = msgspec.structs.replace(ModelConfig(str(folder / "model.onnx"), buckets=BUCKETS), **settings)
    return verify(config, engine, [Slot(engine, bucket) for bucket in BUCKETS])


@pytest.mark.parametrize(
    ("answer", "within", "abs_max", "row"),
    [
        ([[1, 1000], [2, 0], [3, -5]], True, 0, 0),
        ([[1, 1000.05], [2, 0], [3, -5]], True, 0.05, 0),
        ([[1, 1000], [2, 0.09], [3, -5]], True, 0.09, 1),
        ([[1, 1000], [2, 0.2], [3, -5]], False, 0.2, 1),
        ([[1, 1000], [2, 0], [3, 5]], False, 10, 2),
    ],
)
def test_differences(answer: list[list[float]], within: bool, abs_max: float, row: int) -> None:
    """rtol is 1e-4 and the largest value 1000: near zero, 0.1 is allowed."""
    found = compare(Y, RIGHT, np.array(answer, np.float32), Tolerance(1e-4))
    assert (found.output, found.within, found.row) == ("y", within, row)
    assert found.abs_max == pytest.approx(abs_max, abs=1e-4)
    assert found.rel_max == pytest.approx(abs_max / 1000, abs=1e-7)


def test_an_absolute_tolerance() -> None:
    near = RIGHT + np.float32(0.01)
    assert compare(Y, RIGHT, near, Tolerance(0, 0.02)).within
    assert not compare(Y, RIGHT, near, Tolerance(0, 0.005)).within


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_must_be_the_same(odd: float) -> None:
    with_odd = RIGHT.copy()
    with_odd[1, 1] = odd
    same = compare(Y, with_odd, with_odd, Tolerance(0))
    assert (same.within, same.abs_max) == (True, 0)
    for expected, answer in ((RIGHT, with_odd), (with_odd, RIGHT)):
        found = compare(Y, expected, answer, Tolerance(1e9, 1e9))
        assert (found.within, found.abs_max, found.rel_max, found.row) == (False, None, None, 1)
        assert "row 1" in found.describe()


def test_two_infinities_are_not_the_same() -> None:
    infinite = np.full((1, 2), np.inf, np.float32)
    assert not compare(Y, infinite, -infinite, Tolerance(1e9, 1e9)).within


def test_integers_must_be_equal() -> None:
    label = tensor("label", (1,), dtype=np.int64)
    right = np.array([1, 2, 3])
    assert compare(label, right, right, Tolerance(1)).within
    assert not compare(label, right, np.array([1, 2, 4]), Tolerance(1, 10)).within
    flag = tensor("flag", (1,), dtype=np.bool_)
    assert not compare(flag, np.array([True]), np.array([False]), Tolerance(1, 10)).within


def test_rows_are_counted_along_the_batch_axis() -> None:
    y = tensor("y", (2, 3), axis=1)
    right = np.zeros((2, 12), np.float32)
    answer = right.copy()
    answer[0, 7] = 1
    assert compare(y, right, answer, Tolerance(0)).row == 2


def test_rows_run_in_pieces_and_are_joined() -> None:
    engine = NumpyEngine([tensor("x", (2, 1), axis=1)], [tensor("y", (2, 1), axis=1)], triple)
    rows = np.arange(14, dtype=np.float32).reshape(2, 7)
    for bucket in (1, 2, 4, 8):
        (answer,) = answers(Slot(engine, bucket), engine.spec, [rows], 7)
        np.testing.assert_array_equal(answer, 3 * rows)


def test_every_bucket_is_compared_with_the_golden_sample(tmp_path: Path) -> None:
    engine = engine_of(triple)
    rows = np.random.default_rng(0).standard_normal((7, 3), np.float32)
    write_golden(tmp_path / "golden.npz", engine.spec, make_golden(engine, [rows], 7))
    report = verify_files(tmp_path, triple)
    assert (report.against, report.rows, report.buckets, report.passed) == ("golden.npz", 7, BUCKETS, True)
    for bucket in BUCKETS:
        with pytest.raises(ModelRefusedError, match=r"not right by golden.npz \(7\): 'y' differs by up to 1"):
            verify_files(tmp_path, wrong_at(bucket))
    assert verify_files(tmp_path, wrong_at(2), atol=2.0).outputs[0].abs_max == pytest.approx(1)


def test_another_engine_is_compared_with_the_cpu_engine(tmp_path: Path) -> None:
    """Where there is no golden sample and the .onnx file is there, or its copy beside a compiled model."""
    save(scale(3), tmp_path)
    assert verify_files(tmp_path, triple).against == "the CPU engine on model.onnx, seeded rows"
    for bucket in BUCKETS:
        with pytest.raises(ModelRefusedError, match=r"not right by the CPU engine on model.onnx, seeded rows \(7\)"):
            verify_files(tmp_path, wrong_at(bucket))


def test_a_source_that_is_another_model(tmp_path: Path) -> None:
    save(scale(3), tmp_path)
    engine = NumpyEngine([tensor("x", (1, 4))], [tensor("y", (1, 4))], triple)
    with pytest.raises(ModelRefusedError, match=r"the compiled model is x float32\[N,4\] .*compile it again"):
        verify(ModelConfig(str(tmp_path / "model.onnx")), engine, [Slot(engine, 1)])


def test_without_either_the_buckets_are_compared_with_each_other(tmp_path: Path) -> None:
    assert verify_files(tmp_path, triple).against == "bucket 1 on seeded rows"
    with pytest.raises(ModelRefusedError, match=r"not right by bucket 1 on seeded rows \(7\): 'y' differs"):
        verify_files(tmp_path, wrong_at(4))


def test_the_cpu_engine_itself(tmp_path: Path) -> None:
    engine = load(save(scale(3), tmp_path))
    report = verify(ModelConfig(str(tmp_path / "model.onnx")), engine, [Slot(engine, bucket) for bucket in BUCKETS])
    assert (report.against, report.passed) == ("bucket 1 on seeded rows", True)


def test_a_golden_sample_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match=r"other.npz: can't be read: No such file"):
        verify_files(tmp_path, triple, golden="other.npz")


def test_a_golden_sample_that_would_be_refused(tmp_path: Path) -> None:
    rows = np.full((1, 3), np.nan, np.float32)
    write_golden(tmp_path / "golden.npz", engine_of(triple).spec, GoldenSample(1, (rows,), (rows,)))
    with pytest.raises(ModelRefusedError, match=r"golden.npz: input 'x' holds a NaN or an infinity, which never"):
        verify_files(tmp_path, triple)
    assert verify_files(tmp_path, triple, non_finite="pass").passed
