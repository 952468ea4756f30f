"""What the door counts itself, model by model and version by version, for `stats` and `ModelStatistics`.

Times of the stages are the core's own stamps; those of whole requests are the door's, its own work included.
"""

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tickpath.client import Prediction

STAGES = {"queue": "queue", "input": "compute_input", "compute": "compute_infer", "output": "compute_output"}
"""The core's stages, and what the statistics call them."""


@dataclass
class Duration:
    """So often, and so long together."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """Once more."""
        self.count += 1
        self.ns += ns

    def plain(self) -> dict[str, int]:
        """As it is told."""
        return {"count": self.count, "ns": self.ns}


@dataclass
class VersionTally:
    """One version's counts, by the statistics' own names."""

    rows: int = 0
    last_ms: int = 0
    durations: dict[str, Duration] = field(default_factory=lambda: defaultdict(Duration))
    by_rows: dict[int, dict[str, Duration]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(Duration)))

    def answered(self, rows: int, prediction: Prediction, taken_ns: int) -> None:
        """One request was answered."""
        self.rows += rows
        self.last_ms = time.time_ns() // 1_000_000
        self.durations["success"].add(taken_ns)
        for stage, ns in prediction.stages.items():
            if (name := STAGES.get(stage)) is not None:
                self.durations[name].add(ns)
                self.by_rows[rows][name].add(ns)

    def plain(self, model: str, version: str) -> dict[str, Any]:
        """A ModelStatistics of the protocol."""
        names = ("success", "fail", *STAGES.values(), "cache_hit", "cache_miss")
        computed = ("compute_input", "compute_infer", "compute_output")
        return {
            "name": model,
            "version": version,
            "last_inference": self.last_ms,
            "inference_count": self.rows,
            "execution_count": self.durations["success"].count,
            "inference_stats": {name: self.durations[name].plain() for name in names},
            "batch_stats": [
                {"batch_size": rows, **{name: durations[name].plain() for name in computed}}
                for rows, durations in sorted(self.by_rows.items())
            ],
        }


class Tally:
    """All versions that were asked for here. Only what the core has listed comes in, so it stays as small as that."""

    def __init__(self) -> None:
        self._versions: dict[tuple[str, str], VersionTally] = defaultdict(VersionTally)

    def answered(self, model: str, rows: int, prediction: Prediction, taken_ns: int) -> None:
        """A request was answered, by the version that says so."""
        self._versions[model, prediction.version].answered(rows, prediction, taken_ns)

    def failed(self, model: str, version: str, taken_ns: int) -> None:
        """A request to this version was refused or lost."""
        self._versions[model, version].durations["fail"].add(taken_ns)

    def of(self, model: str, version: str) -> dict[str, Any]:
        """One version's statistics, zeros where nobody asked for it."""
        return self._versions[model, version].plain(model, version)
