"""What can be turned, and what it is compared with. Whatever is said about a knob is in docs/TUNING.md."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

# The server on the first processor and its client on the second, unless a variant says otherwise.
SPLIT: Final = (0, 1)
# Of requests that are in flight together, where they may share a run.
BURST: Final = 8
REALTIME_PRIORITY: Final = 10
NICE: Final = -10


@dataclass(frozen=True)
class Variant:
    """One server. `server` and `model`: keys of its configuration; `after`: what is done to its process once it is
    ready; `by`: the address it is asked at; `precision`: of the .ov file that is made of the model first."""

    name: str
    server: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    cpus: tuple[int | None, int | None] = SPLIT
    after: Callable[[int], None] | None = None
    by: str = "tcp"
    precision: str | None = None

    @property
    def served(self) -> str:
        """Equal where the server is: it is then started once for all knobs."""
        return repr((dict(self.server), dict(self.model), self.cpus[0], self.after, self.by == "tls", self.precision))


@dataclass(frozen=True)
class Knob:
    """Variants, the first of which the others are compared with. `client`: `c`, the blocking C client; `python`, which
    has a Unix socket and TLS beside TCP; or `burst`, BURST requests in flight."""

    name: str
    zoo: str
    variants: tuple[Variant, ...]
    client: str = "c"


def realtime(pid: int) -> None:
    """As `chrt --fifo` does, for each thread."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))


def nicer(pid: int) -> None:
    """As `renice` does, for each thread."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), NICE)


ALL_DAY: Final = ["00:00-12:00", "12:00-00:00"]

KNOBS: Final = (
    Knob(
        "waiting",
        "mlp",
        (
            Variant("`poll_us = 50` (default)"),
            Variant("`poll_us = 0`", server={"poll_us": 0}),
            Variant("`poll_us = 500`", server={"poll_us": 500}),
            Variant("`spin = true`", server={"spin": True}),
        ),
    ),
    Knob(
        "cpu",
        "mlp",
        (
            Variant("no `cpu` (default), client anywhere", cpus=(None, None)),
            Variant("`cpu = 0`, client on 1"),
            Variant("`cpu = 0`, client on 0", cpus=(0, 0)),
        ),
    ),
    Knob(
        "executor",
        "mlp",
        (Variant('`executor = "auto"` (default): inline here'), Variant("`thread`", model={"executor": "thread"})),
    ),
    Knob("threads", "lstm_a", (Variant("`threads = 1` (default)"), Variant("`threads = 2`", model={"threads": 2}))),
    Knob(
        "buckets",
        "lstm_a",
        (
            Variant("`buckets = [1, 2, 4, 8]` (default)"),
            Variant("`[2]`: one row of zeros beside each", model={"buckets": [2]}),
            Variant("`[8]`: seven", model={"buckets": [8]}),
        ),
    ),
    Knob(
        "sharing",
        "lstm_a",
        (
            Variant("`batch_rows_max = 0` (default)"),
            Variant("`batch_rows_max = 8`", model={"batch_rows_max": 8}),
            Variant("and `batch_us = 500`", model={"batch_rows_max": 8, "batch_us": 500}),
        ),
        client="burst",
    ),
    Knob(
        "sharing, nothing to share with",
        "lstm_a",
        (
            Variant("`batch_rows_max = 0` (default)"),
            Variant("`batch_rows_max = 8`", model={"batch_rows_max": 8}),
            Variant("and `batch_us = 500`", model={"batch_rows_max": 8, "batch_us": 500}),
        ),
    ),
    Knob(
        "transport",
        "mlp",
        (Variant("TCP over loopback (default)"), Variant("`uds`", by="unix"), Variant("`tls`", by="tls")),
        client="python",
    ),
    Knob(
        "numbers",
        "lstm_a",
        (
            Variant('`non_finite = "refuse"` (default)'),
            Variant("`pass`", model={"non_finite": "pass"}),
            Variant("outputs too", model={"output_non_finite": "refuse", "output_min": -1e9, "output_max": 1e9}),
        ),
    ),
    Knob(
        "engine",
        "lstm_a",
        (
            Variant("onnxruntime, fp32 (default)"),
            Variant("OpenVINO, fp32", precision="fp32"),
            Variant("OpenVINO, bf16", precision="bf16"),
        ),
    ),
    Knob(
        "beside the way",
        "mlp",
        (
            Variant("observer, no recording (default)"),
            Variant("`observer_port = false`", server={"observer_port": False}),
            Variant("`record`", server={"record": {"dir": "recording"}}),
            Variant('`log_format = "json"`', server={"log_format": "json"}),
            Variant("`quiet_hours`, all day", server={"quiet_hours": ALL_DAY}),
        ),
    ),
    Knob(
        "scheduling",
        "mlp",
        (
            Variant("SCHED_OTHER, nice 0 (default)"),
            Variant(f"nice {NICE}", after=nicer),
            Variant(f"SCHED_FIFO {REALTIME_PRIORITY}", after=realtime),
        ),
    ),
)
