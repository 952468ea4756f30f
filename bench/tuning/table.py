"""From round trips to one Markdown table per knob, and into a text between its markers."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.tuning.knobs import Knob, Variant
from tickpath.loadtest.latency import summarise

Rounds = Sequence[npt.NDArray[np.int64]]
"""ns of each round trip, of each round."""
HEADINGS: Final = "| | p50, µs | p99, µs | p50 / first row | p99 / first row | n |\n|---|---|---|---|---|---|"


def table(knob: Knob, measured: Mapping[str, Rounds], missing: Mapping[str, str]) -> str:
    """One row a variant. Ratios are taken within a round: the median, and the lowest and the highest."""
    first = measured[knob.variants[0].name]
    rows = [_row(variant, first, measured, missing) for variant in knob.variants]
    return "\n".join([HEADINGS, *rows])


def _row(variant: Variant, first: Rounds, measured: Mapping[str, Rounds], missing: Mapping[str, str]) -> str:
    if variant.name in missing:
        return f"| {variant.name} | not measured: {missing[variant.name]} | | | | |"
    rounds = measured[variant.name]
    p50s, p99s = _percentiles(rounds)
    first_p50s, first_p99s = _percentiles(first)
    cells = [f"{np.median(p50s) / 1e3:.1f}", f"{np.median(p99s) / 1e3:.1f}"]
    cells += [_ratios(p50s / first_p50s), _ratios(p99s / first_p99s), f"{sum(map(len, rounds)):,}"]
    return f"| {variant.name} | {' | '.join(cells)} |"


def _percentiles(rounds: Rounds) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """p50 and p99 of each round, in ns."""
    summaries = [summarise(samples) for samples in rounds]
    return np.array([float(each.p50_ns) for each in summaries]), np.array([float(each.p99_ns) for each in summaries])


def _ratios(ratios: npt.NDArray[np.float64]) -> str:
    return f"{np.median(ratios):.2f} ({ratios.min():.2f}-{ratios.max():.2f})"


def load() -> str:
    """Of the machine, over the last minute: with others at work a table says little."""
    return f"{os.getloadavg()[0]:.1f}"


def write(path: Path, blocks: Mapping[str, str]) -> None:
    """Puts each block between its two markers. Raises ValueError where the text has none for one."""
    text = path.read_text("utf-8")
    for name, block in blocks.items():
        begin, end = markers(name)
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"{path} has no place for {name!r}: write {begin} and {end} on lines of their own")
        text = f"{before}{begin}\n{block}\n{end}{after}"
    path.write_text(text, "utf-8")


def markers(name: str) -> tuple[str, str]:
    """Between which a block stands."""
    return f"<!-- measured: {name} -->", f"<!-- end: {name} -->"
