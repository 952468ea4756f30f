"""Which batch sizes are captured, and which of them a request runs in."""

import pytest

from tickpath.graphs import DEFAULT_BUCKETS, BucketError, bucket_index_by_rows, resolve_buckets


@pytest.mark.parametrize(
    ("asked", "batched", "rows_fixed", "expected"),
    [
        (None, True, None, DEFAULT_BUCKETS),
        ((1,), True, None, (1,)),
        ((3, 5, 64), True, None, (3, 5, 64)),
        (None, True, 8, (8,)),
        ((8,), True, 8, (8,)),
        (None, False, None, (1,)),
        ((1,), False, None, (1,)),
    ],
)
def test_buckets_are_those_asked_for_or_those_the_model_allows(
    asked: tuple[int, ...] | None, batched: bool, rows_fixed: int | None, expected: tuple[int, ...]
) -> None:
    assert resolve_buckets(asked, batched, rows_fixed) == expected


@pytest.mark.parametrize(
    ("asked", "batched", "rows_fixed", "says"),
    [
        ((1, 8), True, 8, "buckets 1,8 were asked for, but the model was exported for exactly 8 rows: use buckets 8"),
        ((4,), True, 8, "buckets 4 were asked for, but the model was exported for exactly 8 rows: use buckets 8"),
        (
            (1, 2),
            False,
            None,
            "buckets 1,2 were asked for, but the model has no batch axis: use buckets 1, "
            "or declare the axis with --shape INPUT=N,... (in a configuration shapes)",
        ),
    ],
)
def test_what_the_model_cannot_do_is_refused_with_what_it_can(
    asked: tuple[int, ...], batched: bool, rows_fixed: int | None, says: str
) -> None:
    with pytest.raises(BucketError) as refused:
        resolve_buckets(asked, batched, rows_fixed)
    assert str(refused.value) == says


def test_a_compiled_model_has_the_buckets_it_was_compiled_for() -> None:
    assert resolve_buckets(None, True, None, (1, 4)) == (1, 4)
    assert resolve_buckets((4,), True, None, (1, 4)) == (4,)
    with pytest.raises(BucketError, match="buckets 1,2 were asked for, but the model was compiled for 1,4: compile it"):
        resolve_buckets((1, 2), True, None, (1, 4))


@pytest.mark.parametrize("buckets", [(1,), (8,), (1, 2, 4, 8), (3, 5, 64), (2, 3), (1, 65536)])
def test_every_number_of_rows_has_the_smallest_bucket_that_holds_it(buckets: tuple[int, ...]) -> None:
    index_by_rows = bucket_index_by_rows(buckets)
    assert len(index_by_rows) == buckets[-1] + 1
    for rows in range(1, min(buckets[-1], 100) + 1):
        assert buckets[index_by_rows[rows]] == min(bucket for bucket in buckets if bucket >= rows)
    assert buckets[index_by_rows[-1]] == buckets[-1]
