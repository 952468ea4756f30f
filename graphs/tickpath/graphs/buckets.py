"""Buckets: the batch sizes that are captured. A request runs in the smallest one that holds its rows; nothing else
ever runs. Pure."""

from typing import Final

# Up to 8 rows: a desk asks for one symbol or a handful. More rows cost memory and start-up time, so they are asked for.
DEFAULT_BUCKETS: Final = (1, 2, 4, 8)


class BucketError(Exception):
    """The buckets asked for don't fit the model. The text says which do."""


def resolve_buckets(
    asked: tuple[int, ...] | None, batched: bool, rows_fixed: int | None, compiled: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """The buckets of one model, ascending: those asked for, or the defaults, or the only one that the model allows.
    `compiled`: those that it was compiled for, which are then the defaults and all there can be.

    Raises BucketError: what the model can't do must fail here, at load, not when two requests first meet.
    """
    only = 1 if not batched else rows_fixed
    if compiled and not set(asked or ()) <= set(compiled):
        texts = [",".join(map(str, buckets)) for buckets in (asked or (), compiled)]
        raise BucketError(
            f"buckets {texts[0]} were asked for, but the model was compiled for {texts[1]}: compile it again"
        )
    if compiled:
        return asked or compiled
    if only is None:
        return asked or DEFAULT_BUCKETS
    if asked not in (None, (only,)):
        why = f"was exported for exactly {only} rows" if batched else "has no batch axis"
        or_else = "" if batched else ", or declare the axis with --shape INPUT=N,... (in a configuration shapes)"
        text = ",".join(map(str, asked or ()))
        raise BucketError(f"buckets {text} were asked for, but the model {why}: use buckets {only}{or_else}")
    return (only,)


def bucket_index_by_rows(buckets: tuple[int, ...]) -> tuple[int, ...]:
    """For each number of rows from 0 to the largest bucket, the index of its bucket: the look-up of the hot path.

    Rows 0 stands for no request; its entry is never used.
    """
    indexes = []
    index = 0
    for rows in range(buckets[-1] + 1):
        if rows > buckets[index]:
            index += 1
        indexes.append(index)
    return tuple(indexes)
