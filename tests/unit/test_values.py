"""Whether elements are what they should be, on any bits there are: in the request's own rows, and in no others."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from tests.numpy_engine import NumpyEngine, tensor

from tickpath.engines import Array, TensorSpec
from tickpath.graphs import Bounds, OutputRules, Slot
from tickpath.graphs.values import bounds_check, finite_check, input_check

FLOATS = (np.float16, np.float32, np.float64)
SEED = 20


def special_bits(dtype: type[np.floating]) -> Array:
    """Every kind of float by its bits: zeros, denormals, the largest, infinities, NaN of both kinds with payloads, and
    the negatives of all."""
    bits, fraction = np.finfo(dtype).bits, np.finfo(dtype).nmant
    infinity = ((1 << bits - 1 - fraction) - 1) << fraction
    kinds = [
        0,
        1,
        (1 << fraction) - 1,
        1 << fraction,
        infinity - 1,
        infinity,
        infinity + 1,
        infinity | 1 << fraction - 1,
    ]
    kinds += [infinity | 0x155 & (1 << fraction) - 1, (1 << bits - 1) - 1]
    return np.array([sign | kind for kind in kinds for sign in (0, 1 << bits - 1)], f"u{bits // 8}").view(dtype)


def is_non_finite(values: Array) -> bool:
    return bool(finite_check(values, np.zeros_like(values))())


def is_outside(values: Array, bounds: Bounds) -> bool:
    return bool(bounds_check(values, bounds.rounded_to(values.dtype))())


@pytest.mark.parametrize("dtype", FLOATS)
def test_each_kind_of_float_alone_and_among_others(dtype: type[np.floating]) -> None:
    for value in special_bits(dtype):
        for size in (1, 2, 7, 8, 33, 257):
            values = np.full(size, -1.5, dtype)
            for place in {0, size // 2, size - 1}:
                values[place] = value
                assert is_non_finite(values) is not bool(np.isfinite(value)), value.tobytes().hex()
                check = input_check(values)
                assert check is not None
                assert bool(check()) is not bool(np.isfinite(value))
                values[place] = -1.5


@pytest.mark.parametrize("dtype", FLOATS)
def test_any_bits(dtype: type[np.floating]) -> None:
    """A few of them non-finite in some arrays, none in others."""
    random = np.random.default_rng(SEED)
    seen = set()
    for size in random.integers(1, 70, 600):
        values = np.frombuffer(random.bytes(size * np.dtype(dtype).itemsize), dtype)
        finite = bool(np.isfinite(values).all())
        assert is_non_finite(values) is not finite, values.tobytes().hex()
        low, high = sorted(float(np.float64(value)) for value in random.normal(0, 1e3, 2))
        bounds = Bounds(low, high).rounded_to(np.dtype(dtype))
        assert bounds.low is not None
        assert bounds.high is not None
        within = bool(((values >= bounds.low) & (values <= bounds.high)).all())
        assert is_outside(values, bounds) is not within, values.tobytes().hex()
        seen.add((finite, within))
    assert len(seen) > 1


@pytest.mark.parametrize("dtype", [*FLOATS, np.int8, np.int64, np.uint64])
@pytest.mark.parametrize("size", [1, 5, 64, 1000])
def test_bounds(dtype: type[np.number], size: int) -> None:
    values = np.full(size, 5, dtype)
    for place in {0, size // 2, size - 1}:
        for value, outside_low, outside_high in (
            (1, True, False),
            (2, False, False),
            (9, False, False),
            (10, False, True),
        ):
            values[place] = value
            assert is_outside(values, Bounds(2, None)) is outside_low
            assert is_outside(values, Bounds(None, 9)) is outside_high
            assert is_outside(values, Bounds(2, 9)) is (outside_low or outside_high)
            values[place] = 5


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_is_within_no_bounds_wherever_it_stands(dtype: type[np.floating]) -> None:
    for bounds in (Bounds(low=0), Bounds(high=9), Bounds(0, 9)):
        for place in range(9):
            values = np.arange(9).astype(dtype)
            assert not is_outside(values, bounds)
            values[place] = np.nan
            assert is_outside(values, bounds)


def test_a_bound_is_as_precise_as_the_output() -> None:
    tenth = np.full(3, 0.1, np.float32)
    assert float(tenth[0]) > 0.1
    assert not is_outside(tenth, Bounds(high=0.1))
    assert not is_outside(-tenth, Bounds(low=-0.1))
    assert is_outside(np.nextafter(tenth, np.float32(1)), Bounds(high=0.1))
    assert not is_outside(np.full(3, 65504, np.float16), Bounds(-1e300, 1e300))
    assert Bounds(-1e300, 1e300).rounded_to(np.dtype(np.float16)).shut_out_infinity is False


def test_large_integers_are_compared_as_they_are() -> None:
    values = np.array([2**53 + 1], np.int64)
    assert is_outside(values, Bounds(high=2.0**53))
    assert not is_outside(np.array([2**53], np.int64), Bounds(high=2.0**53))


# Rows one behind the other, or not; several places a row; no batch axis.
LAYOUTS = [
    tensor("first", (1, 3)),
    tensor("second", (2, 1, 3), 1),
    tensor("last", (2, 3, 1), 2),
    tensor("two-a-row-second", (2, 2, 3), 1),
    tensor("double", (1, 4), 0, np.float64),
    tensor("half", (1, 3), 0, np.float16),
    tensor("whole", (2, 2), None),
]


def answering(spec: TensorSpec, answer: Array) -> NumpyEngine:
    """A model that answers this, whatever it is asked."""

    def compute(_inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        outputs[0][...] = answer

    return NumpyEngine([], [spec], compute)


@pytest.mark.parametrize("spec", LAYOUTS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 11.0, -11.0])
def test_only_the_requests_own_rows_count(spec: TensorSpec, bad: float) -> None:
    """Each element in turn is bad: found where it is in the rows asked for, passed over where it is padding. Twice, as
    what is looked at once may be remembered."""
    bucket = 4
    answer: npt.NDArray[np.floating] = np.ones(spec.shape_at(bucket), spec.dtype)
    slot = Slot(answering(spec, answer), bucket, OutputRules(True, {spec.name: Bounds(-10, 10)}))
    finite_only = Slot(answering(spec, answer), bucket, OutputRules(finite=True))
    for place in np.ndindex(answer.shape):
        row = 0 if spec.batch_axis is None else place[spec.batch_axis] // spec.shape[spec.batch_axis]
        for value in (bad, 1.0):
            answer[place] = value
            for each in (slot, finite_only):
                each.fill(bucket, [])
                each.replay()
            for rows in (1, 3, 4, 2):
                own = value != 1.0 and row < rows
                assert slot.has_bad_output(rows) is own
                assert slot.output_outside(rows) == (spec.name if own else None)
                not_finite = spec.name if own and not np.isfinite(bad) else None
                assert slot.non_finite_output(rows) == finite_only.non_finite_output(rows) == not_finite
                assert finite_only.has_bad_output(rows) is (not_finite is not None)


def test_what_is_asked_for_is_looked_at_and_nothing_else() -> None:
    """Bools have no bounds, integers no NaN, an empty tensor nothing; and without rules all is good."""
    specs = [
        tensor("flag", (1, 2), 0, np.bool_),
        tensor("count", (1, 2), 0, np.int32),
        tensor("none", (0, 2), None),
        tensor("x", (1, 2)),
    ]

    def compute(_inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        outputs[0][...] = True
        outputs[1][...] = 7
        outputs[3][...] = np.nan

    everything = dict.fromkeys(("flag", "count", "none"), Bounds(0, 0))
    for rules, bad in (
        (OutputRules(), None),
        (OutputRules(False, everything), "count"),
        (OutputRules(True, {}), "x"),
        (OutputRules(False, {"x": Bounds(low=0)}), "x"),
    ):
        slot = Slot(NumpyEngine([], specs, compute), 2, rules)
        slot.fill(1, [])
        slot.replay()
        assert slot.has_bad_output(1) is (bad is not None)
        assert (slot.non_finite_output(1) or slot.output_outside(1)) == bad
