"""A slot: what a graph finds in its buffers, and what a request gets out of them, whoever came before."""

import ctypes
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.numpy_engine import NumpyEngine, copy_through, tensor
from tests.onnx_models import gru, save

from tickpath.engines import Array, Engine, TensorSpec
from tickpath.engines.onnxruntime import load_onnx
from tickpath.engines.zoo import build
from tickpath.graphs import PinnedArena, Slot

BUCKET = 8
# Batch axis first, second, third; several places a row; ones before the axis; half floats, integers, one byte.
LAYOUTS = [
    tensor("first", (1, 3)),
    tensor("vector", (1,)),
    tensor("second", (2, 1, 3), 1),
    tensor("last", (2, 3, 1), 2),
    tensor("ones-before", (1, 1, 5), 1),
    tensor("three-a-row", (3, 2)),
    tensor("two-a-row-second", (2, 2, 3), 1),
    tensor("half", (1, 3), 0, np.float16),
    tensor("long", (1, 3), 0, np.int64),
    tensor("byte", (1, 7), 0, np.uint8),
]


def layouts() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("spec", LAYOUTS, ids=lambda spec: spec.name)


def random_rows(spec: TensorSpec, rows: int, random: np.random.Generator) -> Array:
    """No zeros among them, so that padding stands out."""
    return random.integers(1, 200, spec.shape_at(rows)).astype(spec.dtype)


def cut(array: Array, spec: TensorSpec, start: int, stop: int) -> Array:
    """The rows of an array, by numpy's own means."""
    assert spec.batch_axis is not None
    places = spec.shape[spec.batch_axis]
    return array.take(range(start * places, stop * places), axis=spec.batch_axis)


def copies(outputs: Sequence[memoryview]) -> list[bytes]:
    return [bytes(output) for output in outputs]


@layouts()
def test_rows_behind_a_request_are_zero_whoever_came_before(spec: TensorSpec) -> None:
    engine = NumpyEngine([spec], [spec])
    slot = Slot(engine, BUCKET)
    (bound,) = engine.graphs[0].inputs
    random = np.random.default_rng(1)
    for rows in [*range(1, BUCKET + 1), *range(BUCKET, 0, -1), *random.integers(1, BUCKET + 1, 200).tolist()]:
        data = random_rows(spec, rows, random)
        slot.fill(rows, [data.tobytes()])
        assert np.array_equal(cut(bound, spec, 0, rows), data)
        assert not cut(bound, spec, rows, BUCKET).any(), f"{rows} rows"


@layouts()
def test_a_request_reads_its_own_rows_and_no_more(spec: TensorSpec) -> None:
    slot = Slot(NumpyEngine([spec], [spec]), BUCKET)
    random = np.random.default_rng(2)
    for rows in (BUCKET, 1, 5, BUCKET, 2):
        data = random_rows(spec, rows, random)
        slot.fill(rows, [memoryview(bytearray(data.tobytes()))])
        slot.replay()
        assert copies(slot.read(rows)) == [data.tobytes()]


def test_inputs_of_several_layouts_share_a_slot() -> None:
    engine = NumpyEngine(LAYOUTS, LAYOUTS)
    slot = Slot(engine, BUCKET)
    random = np.random.default_rng(3)
    for rows in (BUCKET, 3, 1, 6):
        data = [random_rows(spec, rows, random).tobytes() for spec in LAYOUTS]
        slot.fill(rows, data)
        slot.replay()
        assert copies(slot.read(rows)) == data


def test_an_optional_input_takes_its_default_again_after_it_was_given() -> None:
    default = np.array([1.5, -2.0], np.float32)
    specs = [tensor("x", (1, 2)), tensor("o", (2,), None, default=default)]
    engine = NumpyEngine(specs, specs)
    slot = Slot(engine, 4)
    x, given = np.ones((3, 2), np.float32).tobytes(), np.array([7, 8], np.float32).tobytes()
    for rows, optional in ((3, None), (3, given), (3, None), (4, given), (4, None), (1, given)):
        slot.fill(rows, [x[: 8 * rows].ljust(8 * rows, b"\1"), optional])
        slot.replay()
        assert bytes(slot.read(rows)[1]) == (optional or default.tobytes())


def test_a_scalar_and_an_empty_tensor() -> None:
    specs = [tensor("scalar", (), None, np.int64), tensor("none", (0, 3), None)]
    slot = Slot(NumpyEngine(specs, specs), 1)
    assert slot.bad_value() is None
    slot.fill(1, [np.int64(-5).tobytes(), b""])
    slot.replay()
    assert copies(slot.read(1)) == [np.int64(-5).tobytes(), b""]


def test_a_model_without_inputs() -> None:
    def compute(_inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        outputs[0][...] = 3

    slot = Slot(NumpyEngine([], [tensor("y", (2,), None)], compute), 1)
    slot.fill(1, [])
    slot.replay()
    assert copies(slot.read(1)) == [np.array([3, 3], np.float32).tobytes()]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_no_float_but_a_finite_one_is_good(dtype: type[np.floating], bad: float) -> None:
    spec = tensor("x", (1, 5), 0, dtype)
    slot = Slot(NumpyEngine([tensor("before", (1,)), spec], []), 2)
    good = np.array([[np.finfo(dtype).max, np.finfo(dtype).min, np.finfo(dtype).tiny, -0.0, 0]], dtype)
    for place in range(5):
        data = good.copy()
        data[0, place] = bad
        slot.fill(1, [bytes(4), data.tobytes()])
        assert slot.bad_value() == "x"
        slot.fill(1, [bytes(4), good.tobytes()])
        assert slot.bad_value() is None


def test_a_bool_is_0_or_1() -> None:
    spec = tensor("flags", (1, 4), 0, np.bool_)
    slot = Slot(NumpyEngine([spec], [spec]), 2)
    slot.fill(1, [b"\0\1\0\1"])
    assert slot.bad_value() is None
    slot.fill(1, [b"\0\1\2\1"])
    assert slot.bad_value() == "flags"
    slot.fill(2, [b"\1" * 8])
    assert slot.bad_value() is None
    slot.replay()
    assert copies(slot.read(2)) == [b"\1" * 8]


def test_an_optional_input_that_is_given_is_held_to_the_same() -> None:
    optional = tensor("o", (1,), None, default=np.ones(1, np.float32))
    unusual = tensor("u", (1,), None, default=np.array([-np.inf], np.float32))
    slot = Slot(NumpyEngine([optional, unusual], []), 1)
    one, nan = np.float32(1).tobytes(), np.float32(np.nan).tobytes()
    for data, bad in (([None, None], None), ([nan, None], "o"), ([one, one], None), ([None, None], None)):
        slot.fill(1, data)
        assert slot.bad_value() == bad


def test_what_was_read_is_the_slots_own_memory() -> None:
    """Whoever keeps an output copies it; this is why."""
    spec = tensor("x", (1, 2))
    slot = Slot(NumpyEngine([spec], [spec]), 2)
    slot.fill(1, [np.array([1, 2], np.float32).tobytes()])
    slot.replay()
    (first,) = slot.read(1)
    kept = bytes(first)
    slot.fill(1, [np.array([3, 4], np.float32).tobytes()])
    slot.replay()
    assert bytes(first) != kept
    assert bytes(slot.read(1)[0]) == bytes(first)


def test_tensors_are_aligned_apart_and_present() -> None:
    sizes = [1, 64, 0, 65, 4, 1000]
    arena = PinnedArena(sizes)
    arrays = [arena.array(index, np.dtype(np.uint8), (size,)) for index, size in enumerate(sizes)]
    for index, array in enumerate(arrays):
        assert not array.any()
        assert array.ctypes.data % 64 == 0 or not array.size
        array[...] = index + 1
    assert [bytes(arena.view(index)) for index in range(len(sizes))] == [
        bytes([index + 1]) * size for index, size in enumerate(sizes)
    ]
    address, page = arrays[0].ctypes.data, 4096
    resident = (ctypes.c_ubyte * 1)()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(page), resident) == 0
    assert resident[0] & 1


@pytest.mark.parametrize("name", ["mlp", "gru"])
def test_the_runtime_answers_each_row_as_if_it_were_alone(name: str, tmp_path: Path) -> None:
    model = gru() if name == "gru" else build(name)
    engine = load_onnx(save(model, tmp_path))
    alone, shared = Slot(engine, 1), Slot(engine, 4)
    random = np.random.default_rng(4)
    for rows in (4, 1, 3, 4, 2):
        data = [random.standard_normal(spec.shape_at(rows)).astype(spec.dtype) for spec in engine.spec.inputs]
        shared.fill(rows, [array.tobytes() for array in data])
        shared.replay()
        answers = [
            np.frombuffer(bytes(raw), np.float32).reshape(spec.shape_at(rows))
            for raw, spec in zip(shared.read(rows), engine.spec.outputs, strict=True)
        ]
        for row in range(rows):
            alone.fill(
                1,
                [
                    cut(array, spec, row, row + 1).tobytes()
                    for array, spec in zip(data, engine.spec.inputs, strict=True)
                ],
            )
            alone.replay()
            for raw, answer, spec in zip(alone.read(1), answers, engine.spec.outputs, strict=True):
                one = np.frombuffer(bytes(raw), np.float32).reshape(spec.shape)
                np.testing.assert_allclose(
                    cut(answer, spec, row, row + 1).astype(np.float32), one, rtol=1e-4, atol=1e-6
                )


def onnx_null(folder: Path) -> Engine:
    return load_onnx(save(build("null"), folder))


@pytest.mark.parametrize("runtime", ["numpy", "onnxruntime"])
def test_ten_thousand_requests_allocate_nothing_that_stays(runtime: str, tmp_path: Path) -> None:
    specs = [tensor("x", (1, 64))]
    engine: Engine = NumpyEngine(specs, specs, copy_through) if runtime == "numpy" else onnx_null(tmp_path)
    slot = Slot(engine, 4)
    data = [[bytes(256 * rows)] for rows in range(5)]

    def cycles(count: int) -> None:
        for turn in range(count):
            rows = turn % 4 + 1
            slot.fill(rows, data[rows])
            slot.bad_value()
            slot.replay()
            slot.read(rows)

    cycles(100)
    tracemalloc.start()
    try:
        cycles(100)
        before, _ = tracemalloc.get_traced_memory()
        cycles(10_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One object a cycle, the smallest there is, would be 160 kB.
    assert after - before < 4096
