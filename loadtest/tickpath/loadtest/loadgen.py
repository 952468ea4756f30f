"""A referee: MLPerf's LoadGen drives the same targets, with its own schedules, clock and verdict.

It checks that our figures are not our own invention. It is not a clock for microseconds: a request passes from LoadGen
to Python and its answer from a reader thread back, and what that takes on this machine stands beside each row, measured
with a system under test that answers at once (the "null" rows).

LoadGen waits for ever for an answer that doesn't come. So whatever is in flight when a connection ends is completed as
failed, and so is all that comes after.
"""

import select
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Literal, Protocol

import mlperf_loadgen
import msgspec

from tickpath.client.address import parse_address
from tickpath.loadtest.goodput import Slo
from tickpath.loadtest.link import Link, open_link
from tickpath.loadtest.run import OK
from tickpath.loadtest.target import UNBOUNDED, Target

Scenario = Literal["SingleStream", "Server"]
SCENARIOS: Final[tuple[Scenario, ...]] = ("SingleStream", "Server")

# What LoadGen chooses among; targets choose their requests by their own count.
SAMPLES: Final = 1024
# LoadGen makes as many queries beforehand as this latency would need, and is INVALID where they don't last.
EXPECTED_NS: Final = 20_000
# How often the reader looks whether it should end.
WAKE_S: Final = 0.1
PREFIX: Final = ":::MLLOG "


@dataclass(frozen=True, slots=True)
class Ruling:
    """What LoadGen says. `failed`: requests without a prediction, which LoadGen can't tell from others."""

    subject: str
    scenario: Scenario
    count: int
    p50_ns: int
    p99_ns: int
    p999_ns: int
    failed: int
    loadgen_valid: bool

    @property
    def valid(self) -> bool:
        return self.loadgen_valid and not self.failed


class Subject(Protocol):
    """A system under test."""

    name: str
    failed: int

    def issue(self, samples: Sequence[mlperf_loadgen.QuerySample]) -> None:
        """Start them; never waits for an answer."""

    def answer(self) -> None:
        """Complete samples until `end`, in a thread of its own."""

    def end(self) -> None:
        """Let `answer` return."""


class NullSubject:
    """Answers at once, from the reader thread: what LoadGen and the threads themselves take."""

    name = "null"
    failed = 0

    def __init__(self) -> None:
        self._issued: SimpleQueue[int | None] = SimpleQueue()

    def issue(self, samples: Sequence[mlperf_loadgen.QuerySample]) -> None:
        for sample in samples:
            self._issued.put(sample.id)

    def answer(self) -> None:
        while (sample_id := self._issued.get()) is not None:
            _complete([sample_id])

    def end(self) -> None:
        self._issued.put(None)


class SocketSubject:
    """A target behind one connection. Raises TickpathError and LoadTestError where there is none."""

    def __init__(self, target: Target, address: str) -> None:
        self._link: Link = open_link(0, parse_address(address), target.dialogue(), UNBOUNDED)
        self.name = target.name
        self.failed = 0
        self._in_flight: dict[int, int] = {}
        self._issued = 0
        self._ending = False

    def issue(self, samples: Sequence[mlperf_loadgen.QuerySample]) -> None:
        for sample in samples:
            index, self._issued = self._issued, self._issued + 1
            self._in_flight[index] = sample.id
            sent = self._link.send(self._link.request(index))
            while not (sent or self._link.ended):
                select.select([], [self._link.fileno()], [], WAKE_S)
                sent = self._link.flush()

    def answer(self) -> None:
        link = self._link
        while not self._ending:
            if link.ended:
                self._give_up()
            if not select.select([link.fileno()], [], [], WAKE_S)[0]:
                continue
            if byte_count := link.receive():
                answers = link.answers(byte_count)
                self.failed += sum(code != OK for _, code, _ in answers)
                _complete([self._in_flight.pop(index) for index, _, _ in answers])
        link.close()

    def end(self) -> None:
        self._ending = True

    def _give_up(self) -> None:
        """Of the connection nothing more will come."""
        while self._in_flight:
            _, sample_id = self._in_flight.popitem()
            self.failed += 1
            _complete([sample_id])


def judge(subject: Subject, scenario: Scenario, slo: Slo, rate_hz: float, seconds: float) -> Ruling:
    """One scenario. SingleStream sends the next request when the one before is answered; Server sends at Poisson times
    of `rate_hz`, and is valid only where `slo` is kept."""
    with tempfile.TemporaryDirectory(prefix="tickpath-loadgen-") as folder, _answering(subject):
        log = mlperf_loadgen.LogSettings()
        log.log_output.outdir = folder
        log.log_output.copy_summary_to_stdout = False
        system = mlperf_loadgen.ConstructSUT(subject.issue, _nothing)
        library = mlperf_loadgen.ConstructQSL(SAMPLES, SAMPLES, _nothing, _nothing)
        try:
            settings = _settings(scenario, slo, rate_hz, seconds)
            mlperf_loadgen.StartTestWithLogSettings(system, library, settings, log, "")
        finally:
            mlperf_loadgen.DestroyQSL(library)
            mlperf_loadgen.DestroySUT(system)
        said = _read(Path(folder, "mlperf_log_detail.txt"))
    return Ruling(
        subject=subject.name,
        scenario=scenario,
        count=said["result_query_count"],
        p50_ns=said["result_50.00_percentile_latency_ns"],
        p99_ns=said["result_99.00_percentile_latency_ns"],
        p999_ns=said["result_99.90_percentile_latency_ns"],
        failed=subject.failed,
        loadgen_valid=said["result_validity"] == "VALID",
    )


@contextmanager
def _answering(subject: Subject) -> Iterator[None]:
    reader = threading.Thread(target=subject.answer, name="loadgen-reader")
    reader.start()
    try:
        yield
    finally:
        subject.end()
        reader.join()


def _settings(scenario: Scenario, slo: Slo, rate_hz: float, seconds: float) -> mlperf_loadgen.TestSettings:
    settings = mlperf_loadgen.TestSettings()
    settings.scenario = getattr(mlperf_loadgen.TestScenario, scenario)
    settings.mode = mlperf_loadgen.TestMode.PerformanceOnly
    settings.min_duration_ms = round(seconds * 1000)
    settings.min_query_count = 1
    settings.single_stream_expected_latency_ns = EXPECTED_NS
    settings.single_stream_target_latency_percentile = float(slo.quantile)
    settings.server_target_qps = rate_hz
    settings.server_target_latency_ns = slo.limit_ns
    settings.server_target_latency_percentile = float(slo.quantile)
    return settings


def _read(detail: Path) -> dict[str, Any]:
    """LoadGen's own log: a line of JSON for each thing that it says."""
    said = (msgspec.json.decode(line.removeprefix(PREFIX)) for line in detail.read_text("utf-8").splitlines())
    return {each["key"]: each["value"] for each in said}


def _complete(sample_ids: Sequence[int]) -> None:
    mlperf_loadgen.QuerySamplesComplete([mlperf_loadgen.QuerySampleResponse(each, 0, 0) for each in sample_ids])


def _nothing(*_: object) -> None:
    pass
