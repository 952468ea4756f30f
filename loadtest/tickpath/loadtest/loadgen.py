"""MLPerf's LoadGen, in the process that runs it: `python -m tickpath.loadtest.loadgen CASE`, which prints its ruling.

It is not a clock for microseconds: a request passes from LoadGen to Python and its answer from a reader thread back,
and what that takes on this machine stands beside each row, measured with a system under test that answers at once (the
"null" rows).

LoadGen waits for ever for an answer that doesn't come. So each is completed as failed when it is given up: after a
while, or when the connection has ended, as is all that comes after. And whatever surprises the reader thread ends the
process.
"""

import ctypes
import os
import select
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Protocol

import mlperf_loadgen
import msgspec

from tickpath.client import TickpathError, Tls
from tickpath.client.address import parse_address
from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.goodput import Slo, parse_slo
from tickpath.loadtest.link import open_link
from tickpath.loadtest.plan import Failed
from tickpath.loadtest.referee import ANSWER_S, QUERIES_MAX, Case, Ruling, Scenario
from tickpath.loadtest.run import OK
from tickpath.loadtest.target import UNBOUNDED, Target
from tickpath.loadtest.targets import make_target
from tickpath.loadtest.words import counted

# What LoadGen chooses among; targets choose their requests by their own count.
SAMPLES: Final = 1024
# How often the reader looks whether it should end.
WAKE_S: Final = 0.1
PREFIX: Final = ":::MLLOG "
PR_SET_PDEATHSIG: Final = 1


class Subject(Protocol):
    """A system under test."""

    name: str
    failed: int
    """Requests that were completed without a prediction."""
    expected_ns: int
    """No request takes less. LoadGen makes as many queries beforehand as this would need, and is INVALID where they
    don't last."""

    def problems(self) -> list[str]:
        """What was wrong beside that, a line each."""

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
    expected_ns = 2_000

    def __init__(self) -> None:
        self._issued: SimpleQueue[int | None] = SimpleQueue()

    def problems(self) -> list[str]:
        return []

    def issue(self, samples: Sequence[mlperf_loadgen.QuerySample]) -> None:
        for sample in samples:
            self._issued.put(sample.id)

    def answer(self) -> None:
        while (sample_id := self._issued.get()) is not None:
            _complete([sample_id])

    def end(self) -> None:
        self._issued.put(None)


class SocketSubject:
    """A target behind one connection. `answer_s`: an answer that takes longer is given up, and comes to nothing should
    it still come. Raises TickpathError and LoadTestError where there is no target."""

    expected_ns = 20_000

    def __init__(self, target: Target, address: str, answer_s: float = ANSWER_S, tls: Tls | None = None) -> None:
        self._link = open_link(0, parse_address(address), target.dialogue(), UNBOUNDED, tls)
        self.name = target.name
        self.failed = 0
        self._answer_s = answer_s
        self._in_flight: dict[int, int] = {}  # LoadGen's id of each
        self._sent: deque[tuple[int, float]] = deque()  # index and time of all that may still be in flight
        self._unasked = 0
        self._issued = 0
        self._stuck = False
        self._ending = False

    def problems(self) -> list[str]:
        told = [self._link.ended] if self._link.ended else []
        if self._stuck:
            told.append(f"the server took no more requests for {self._answer_s:g} s")
        if self._unasked:
            told.append(f"{counted(self._unasked, 'answer')} came to nothing that was in flight")
        return told

    def issue(self, samples: Sequence[mlperf_loadgen.QuerySample]) -> None:
        for sample in samples:
            index, self._issued = self._issued, self._issued + 1
            self._in_flight[index] = sample.id
            sent_s = time.monotonic()
            self._sent.append((index, sent_s))
            sent = self._stuck or self._link.send(self._link.dialogue.request(index))
            while not (sent or self._link.ended or self._stuck):
                select.select([], [self._link.fileno()], [], WAKE_S)
                sent = self._link.flush()
                self._stuck = not sent and time.monotonic() > sent_s + self._answer_s

    def answer(self) -> None:
        link = self._link
        while not self._ending:
            # Of a connection that has ended nothing more will come.
            self._give_up(before_s=time.monotonic() - (0 if link.ended or self._stuck else self._answer_s))
            if not select.select([link.fileno()], [], [], WAKE_S)[0]:
                continue
            if byte_count := link.receive():
                for index, code, _ in link.answers(byte_count):
                    self._complete(index, code == OK)
        link.close()

    def end(self) -> None:
        self._ending = True

    def _give_up(self, before_s: float) -> None:
        """All that left until then."""
        while self._sent and self._sent[0][1] <= before_s:
            index, _ = self._sent.popleft()
            if index in self._in_flight:
                self._complete(index, predicted=False)

    def _complete(self, index: int, predicted: bool) -> None:
        sample_id = self._in_flight.pop(index, None)
        if sample_id is None:
            self._unasked += 1
            return
        self.failed += not predicted
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
            settings = _settings(scenario, slo, rate_hz, seconds, subject.expected_ns)
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
        problems=tuple(_problems(subject, said)),
    )


def _problems(subject: Subject, said: dict[str, Any]) -> Iterator[str]:
    if subject.failed:
        yield f"{subject.failed:,} of {said['result_query_count']:,} requests had no prediction"
    yield from subject.problems()
    if advice := said.get("result_invalid_reason", "").strip():
        yield f"LoadGen says: {advice}"
    elif said["result_validity"] != "VALID":
        yield "LoadGen has too few requests to prove the SLO: a longer --duration"


@contextmanager
def _answering(subject: Subject) -> Iterator[None]:
    reader = threading.Thread(target=subject.answer, name="loadgen-reader")
    reader.start()
    try:
        yield
    finally:
        subject.end()
        reader.join()


def _settings(
    scenario: Scenario, slo: Slo, rate_hz: float, seconds: float, expected_ns: int
) -> mlperf_loadgen.TestSettings:
    settings = mlperf_loadgen.TestSettings()
    settings.scenario = getattr(mlperf_loadgen.TestScenario, scenario)
    settings.mode = mlperf_loadgen.TestMode.PerformanceOnly
    if scenario == "SingleStream":
        seconds = min(seconds, QUERIES_MAX * expected_ns / 1e9)
    settings.min_duration_ms = round(seconds * 1000)
    settings.min_query_count = 1
    settings.single_stream_expected_latency_ns = expected_ns
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


def run(case: Case) -> Ruling:
    """The row that the case asks for. Raises LoadTestError, TickpathError."""
    subject: Subject = NullSubject()
    if not case.null:
        subject = SocketSubject(make_target(case.target, case.options), case.options.address, tls=case.options.tls)
    return judge(subject, case.scenario, parse_slo(case.slo), case.rate_hz, case.seconds)


def _end_process(unexpected: threading.ExceptHookArgs) -> None:
    """Without its reader thread, LoadGen would wait for ever."""
    sys.stderr.write(f"{unexpected.exc_type.__name__}: {unexpected.exc_value}\n")
    sys.stderr.flush()
    os._exit(1)


def main() -> None:
    """Rule on the case in the first argument; end with the parent, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    threading.excepthook = _end_process
    said: Ruling | Failed
    try:
        said = run(msgspec.json.decode(sys.argv[1], type=Case))
    except (TickpathError, LoadTestError) as error:
        said = Failed(str(error))
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")


if __name__ == "__main__":
    main()
