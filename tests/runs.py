"""Runs of a load test whose numbers are known, made of seeded rows; and what searches and comparisons come to."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tickpath.loadtest.compare import Comparison, Difference, Ratio
from tickpath.loadtest.goodput import Goodput, Slo
from tickpath.loadtest.goodput import judge as judge_rate
from tickpath.loadtest.run import GAP, OK, ROW, Ending, Run

START_NS = 7_000_000_000
SERVER_OFFSET_NS = 123_456_789_000


def make_run(
    *,
    count: int = 2000,
    rate_hz: float = 1000,
    seed: int = 1,
    freeze_s: tuple[float, float] | None = None,
    codes: dict[int, int] | None = None,
    stamps: bool = True,
    target: str = "127.0.0.1:7070",
    model: str = "mlp",
    ending: Ending = "complete",
    reason: str = "",
) -> Run:
    """An open loop at `rate_hz`; the server answers in about 60 µs, and not at all from `freeze_s[0]` to
    `freeze_s[1]`. `codes` says how many rows, the last ones, end with which code."""
    rng = np.random.default_rng(seed)
    rows = np.zeros(count, ROW)
    intended_ns = START_NS + np.rint(np.arange(count) * 1e9 / rate_hz).astype(np.int64)
    rows["intended_ns"] = intended_ns
    rows["sent_ns"] = intended_ns + rng.integers(500, 4000, count)
    spans_ns = [rng.integers(*bounds, count) for bounds in STAGE_BOUNDS_NS]
    before_ns, *stages_ns, after_ns = spans_ns
    arrival_ns = rows["sent_ns"] + before_ns
    if freeze_s:
        begin_ns, end_ns = (START_NS + round(at_s * 1e9) for at_s in freeze_s)
        frozen = (arrival_ns >= begin_ns) & (arrival_ns < end_ns)
        arrival_ns = np.where(frozen, end_ns, arrival_ns)
    marks_ns = arrival_ns + np.cumsum([np.zeros(count, np.int64), *stages_ns], axis=0)
    rows["done_ns"] = marks_ns[-1] + after_ns
    if stamps:
        rows["stamps_ns"] = marks_ns.T + SERVER_OFFSET_NS
    rows["code"] = OK
    _end(rows, codes or {})
    connect_ns = rng.integers(200_000, 400_000, 2)
    schedule = f"constant {rate_hz:,.0f}/s"
    span_ns = int(max(rows["done_ns"].max(), intended_ns[-1])) - START_NS
    no_gaps = np.zeros(0, GAP)
    return Run(target, model, schedule, True, 2, rows, connect_ns, ending, reason, span_ns, no_gaps)


STAGE_BOUNDS_NS = ((8000, 14000), (300, 900), (500, 3000), (800, 1200), (18000, 26000), (700, 1100), (8000, 16000))


def _end(rows: npt.NDArray[np.void], codes: dict[int, int]) -> None:
    place = len(rows)
    for code, count in codes.items():
        ended = rows[place - count : place]
        ended["code"] = code
        ended["stamps_ns"] = 0
        if code < OK:
            ended["done_ns"] = 0
        if code in (-2, -3):
            ended["sent_ns"] = 0
        place -= count


def make_goodput() -> Goodput:
    """1,000/s passed twice; between that it met a server that stood still, and did not."""
    slo = Slo(Fraction(99, 100), 250_000)
    good, slow = make_run(), make_run(freeze_s=(0.5, 0.9))
    probes = tuple(judge_rate(run, 1000.0, slo) for run in (good, slow, good))
    return Goodput(slo, 0.99, 1000.0, probes)


def make_comparison(*problems: str) -> Comparison:
    """B is half as fast at p50 and the same at p99."""
    same, slower = Ratio((1.0, 1.0), 1.0, 0.98, 1.02), Ratio((1.5, 1.5), 1.5, 1.4, 1.6)
    return Comparison((Difference("p50", same, slower), Difference("p99", same, same)), 10, 0.95, problems)
