"""When two answers are the same, and by how much they differ where they are not."""

import numpy as np
import numpy.typing as npt
import pytest

from tickpath.playback.comparing import OK, Difference, Outcome, Tally, difference
from tickpath.wire import Result, TensorInfo

STAMPS = (0, 1, 2, 3, 4, 5)


def answer(*outputs: npt.ArrayLike, dtype: str = "float32") -> Result:
    return Result(1, "1", [memoryview(np.asarray(each, dtype).tobytes()) for each in outputs], STAMPS)


def info(dtype: str = "float32", name: str = "y") -> tuple[TensorInfo, ...]:
    return (TensorInfo(name, dtype, (1, 3), 0),)


def test_the_same_bits_are_the_same_nan_too() -> None:
    one = answer([1, np.nan, -0.0])
    assert difference(one, answer([1, np.nan, -0.0]), info()) is None


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_neighbours_are_one_ulp_apart_through_zero_too(dtype: str) -> None:
    values = np.array([1, -1, 0, 3.5], dtype)
    above = np.nextafter(values, np.array(np.inf, dtype))
    found = difference(answer(values, dtype=dtype), answer(above, dtype=dtype), info(dtype))
    assert found is not None
    name, count, of, abs_max, ulp_max = found
    assert (name, count, of, ulp_max) == ("y", 4, 4, 1)
    assert abs_max == float(np.abs(values.astype(np.float64) - above.astype(np.float64)).max())


def test_the_farthest_floats_are_told() -> None:
    largest = np.finfo(np.float64).max
    found = difference(answer([largest], dtype="float64"), answer([-largest], dtype="float64"), info("float64"))
    assert found is not None
    assert found[4] == 2 * int(np.float64(largest).view(np.int64))


def test_both_zeros_differ_in_bits_and_in_nothing_else() -> None:
    assert difference(answer([0.0]), answer([-0.0]), info()) == ("y", 1, 1, 0.0, 0)


def test_nan_beside_a_number_has_no_distance() -> None:
    assert difference(answer([np.nan]), answer([1.0]), info()) == ("y", 1, 1, None, None)


def test_whole_numbers_have_no_ulps() -> None:
    found = difference(answer([1, 2, 2**62], dtype="int64"), answer([1, 5, -(2**62)], dtype="int64"), info("int64"))
    assert found == ("y", 2, 3, float(2**63), None)


def test_other_sizes_and_counts_are_told_in_words() -> None:
    one = answer([1.0, 2.0])
    assert difference(one, answer([1.0]), info()) == ("y: 8 bytes were recorded, 4 came", 0, 0, None, None)
    assert difference(one, answer([1.0], [2.0]), info()) == ("1 outputs were recorded, 2 came", 0, 0, None, None)
    assert difference(one, answer([1.0, 3.0]), ()) == ("output 0: 8 bytes were recorded, 8 came", 0, 0, None, None)


def test_a_tally_keeps_the_first_differences_and_tells_time_from_the_rest() -> None:
    tally = Tally()
    for number in range(20):
        tally.add("m", Outcome(OK, OK, Difference("m", "c", 1, number, "y", 1, 1, number, number, "1", "2")))
    tally.add("m", Outcome(OK, OK))
    tally.add("m", Outcome(OK, "DEADLINE"))
    tally.add("m", Outcome("BAD_VALUE", OK))
    tally.add("m", Outcome("BAD_SHAPE", "BAD_SHAPE"))
    assert [each.id for each in tally.shown] == list(range(10))
    assert (tally.same["m"], tally.differ["m"], tally.abs_max, tally.ulp_max) == (2, 20, 19, 19)
    assert (tally.compared, tally.decided_otherwise) == (24, 1)
