"""What is measured of two models, and what is refused for it."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.numpy_engine import NumpyEngine, tensor
from tests.onnx_models import one_node, save

from tickpath.engines import Array, ModelRefusedError
from tickpath.engines.onnxruntime import load_onnx
from tickpath.engines.passes import TOLERANCES, OutputParity, Parity, Tolerance, measure_parity, refuse
from tickpath.engines.passes.parity import ROWS_MIN, rows_like_sample

X, Y = tensor("x", (1, 3)), tensor("y", (1, 3))

FINE = OutputParity(bucket=4, output="y", rows=64, max_abs=1e-6, max_rel=1e-6, max_ulp=2, argmax_flips=0, nan_count=0)


def changed(**figures: float) -> Parity:
    return Parity((FINE, msgspec.structs.replace(FINE, **figures)))


def only(parity: Parity) -> OutputParity:
    (output,) = parity.outputs
    return output


def copying(arrays: Sequence[Array]) -> list[Array]:
    return [np.array(array) for array in arrays]


def test_a_model_is_equal_to_itself_at_every_bucket(tmp_path: Path) -> None:
    path = save(one_node("Sigmoid", np.float32, ["N", 5]), tmp_path)
    parity = measure_parity(load_onnx(path), load_onnx(path), [1, 3, 8])
    assert [(each.bucket, each.rows) for each in parity.outputs] == [(1, 64), (3, 66), (8, 64)]
    assert all(
        (each.max_abs, each.max_ulp, each.argmax_flips, each.nan_count) == (0, 0, 0, 0) for each in parity.outputs
    )
    refuse(parity, TOLERANCES["fp32"])


def test_figures_of_a_known_difference() -> None:
    def off(arrays: Sequence[Array]) -> list[Array]:
        return [np.add(array, 0.5, dtype=np.float32, casting="unsafe") for array in arrays]

    measured = only(measure_parity(NumpyEngine([X], [Y]), off, [64]))
    largest = max(float(np.abs(rows[0]).max()) for rows in rows_like_sample(NumpyEngine([X], [Y]), 64))
    assert (measured.max_abs, measured.max_rel) == (0.5, 0.5 / largest if largest else 1.0)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_ulps_are_of_the_outputs_own_type(dtype: str) -> None:
    one, other = tensor("x", (1,), dtype=dtype), tensor("y", (1,), dtype=dtype)

    def next_number(arrays: Sequence[Array]) -> list[Array]:
        return [np.nextafter(np.nextafter(array, np.asarray(9, dtype)), np.asarray(9, dtype)) for array in arrays]

    assert only(measure_parity(NumpyEngine([one], [other]), next_number, [1])).max_ulp == 2


def test_both_zeros_are_one_place() -> None:
    def negative(arrays: Sequence[Array]) -> list[Array]:
        return [np.where(array == 0, np.float32(-0.0), array) for array in arrays]

    assert only(measure_parity(NumpyEngine([X], [Y]), negative, [1])).max_ulp == 0


def test_another_largest_element_is_a_flip() -> None:
    def turned(arrays: Sequence[Array]) -> list[Array]:
        return [np.roll(array, 1, axis=-1) for array in arrays]

    measured = only(measure_parity(NumpyEngine([X], [Y]), turned, [4]))
    assert measured.argmax_flips == 64 - 4, "every row but those of zeros"


def test_another_integer_is_a_flip() -> None:
    ids = tensor("y", (1, 3), dtype="i8")

    def one_off(arrays: Sequence[Array]) -> list[Array]:
        return [np.add(array, [0, 1, 0]) for array in arrays]

    measured = only(measure_parity(NumpyEngine([tensor("x", (1, 3), dtype="i8")], [ids]), one_off, [1]))
    assert (measured.argmax_flips, measured.max_abs) == (64, 0)


@pytest.mark.parametrize(
    ("reference", "candidate", "count"),
    [(1, np.nan, 64), (np.inf, 1, 64), (np.inf, -np.inf, 64), (np.inf, np.inf, 0), (np.nan, np.nan, 0)],
)
def test_what_is_not_finite_is_counted_apart(reference: float, candidate: float, count: int) -> None:
    def fill(number: float) -> NumpyEngine:
        def compute(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
            outputs[0][...] = number

        return NumpyEngine([X], [tensor("y", (1,))], compute)

    measured = only(measure_parity(fill(reference), fill(candidate), [8]))
    assert (measured.nan_count, measured.max_abs) == (count, 0)


def test_rows_vary_keep_their_kind_and_come_again() -> None:
    engine = NumpyEngine([X, tensor("ids", (2,), dtype="i8"), tensor("on", (1,), dtype="?")], [Y])
    first, second = (list(rows_like_sample(engine, 8)) for _ in range(2))
    assert len(first) * 8 == ROWS_MIN
    assert all(
        np.array_equal(one, other) for a, b in zip(first, second, strict=True) for one, other in zip(a, b, strict=True)
    )
    assert len({rows[0].tobytes() for rows in first}) == len(first)
    assert all(np.array_equal(rows[1], first[0][1]) for rows in first), "any integer won't do"
    assert all(not np.signbit(rows[0]).any() for rows in first), "as the sample, which has none below zero"


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"nan_count": 3}, "at bucket 4 output 'y' has 3 elements that are not finite"),
        ({"max_rel": 2e-4}, r"at bucket 4 output 'y' is off by 2.00e-04 of its largest value, 1e-04 is tolerated"),
        ({"max_rel": np.nan}, "is off by nan"),
        ({"argmax_flips": 2}, "has another largest element in 2 of 64 rows, 2% are tolerated"),
    ],
)
def test_what_is_refused_says_where_and_by_which_figure(figures: dict[str, float], words: str) -> None:
    with pytest.raises(ModelRefusedError, match=words):
        refuse(changed(**figures), TOLERANCES["fp32"])


def test_a_share_of_flips_is_tolerated() -> None:
    refuse(changed(argmax_flips=3), Tolerance(max_rel=1, flips_share=0.05))
    with pytest.raises(ModelRefusedError):
        refuse(changed(argmax_flips=4), Tolerance(max_rel=1, flips_share=0.05))


def test_the_table_has_a_row_for_each_output_and_bucket() -> None:
    lines = changed(bucket=128).describe().splitlines()
    assert [line.split()[0] for line in lines] == ["bucket", "4", "128"]
    assert len({len(line) for line in lines}) == 1


def test_it_goes_through_json() -> None:
    parity = changed(bucket=2)
    assert msgspec.json.decode(msgspec.json.encode(parity), type=Parity) == parity
