"""/status.json and /slow over HTTP, and the commands that ask for them."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.integration.observer.observing import FAST, MODELS, SLOW, Observing, get, observing, write
from tests.processes import free_port
from tests.waiting import wait_until

from tickpath.cli import tickpath
from tickpath.observe.records import CoreDescription, EventKind, GlobalCell, RecordWriter, State, VersionCell
from tickpath.observe.schema import SCHEMA, ModelStatus, SlowReport, Status
from tickpath.wire import STAGES, Code


def status(observer: Observing) -> Status:
    kind, body = observer.get("/status.json")
    assert kind == "application/json"
    return msgspec.json.decode(body, type=Status)


def model(observer: Observing, name: str) -> ModelStatus:
    return next(model for model in status(observer).models if model.name == name)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tickpath, arguments)


def test_status_says_what_the_core_counts(writer: RecordWriter, observer: Observing) -> None:
    writer.set_cell(GlobalCell.STATE, State.READY)
    for cell, value in (
        (GlobalCell.SESSIONS, 3),
        (GlobalCell.FEEDS, 2),
        (GlobalCell.QUIET, 1),
        (GlobalCell.FEED_GAPS, 9),
    ):
        writer.set_cell(cell, value)
    writer.refused(None, Code.UNKNOWN_MODEL)
    writer.refused(0, Code.DEADLINE)
    writer.refused(0, Code.ENGINE_FAILED)
    for _ in range(6):
        writer.refused(0, Code.NOT_READY)
    writer.add_version(0, VersionCell.WARM_UP, 4)
    writer.set_version(0, VersionCell.IN_FLIGHT, 4)
    writer.set_version(0, VersionCell.QUEUE_DEPTH, 2)
    writer.add_version(0, VersionCell.LATE_IN_QUEUE, 5)
    write(writer, 0, [50_000] * 100)
    told = status(observer)
    assert told.schema == SCHEMA
    assert (told.core.pid, told.core.state, told.core.quiet) == (os.getpid(), "ready", True)
    assert (told.sessions.open, told.feeds.open, told.feeds.gaps) == (3, 2, 9)
    assert told.refused == {"UNKNOWN_MODEL": 1}
    fast, slow = told.models
    assert (fast.name, fast.live, fast.ready) == ("fast", "1", True)
    assert (fast.in_flight, fast.queued, fast.errors, fast.misses) == (4, 2, 1 + 2, 5)
    assert (fast.warm_up, slow.warm_up) == (4, 0)
    assert fast.codes == {"OK": 100, "DEADLINE": 1, "ENGINE_FAILED": 1, "NOT_READY": 6}
    assert fast.latency.samples == 100
    assert fast.latency.p99_ns == pytest.approx(50_000, rel=0.01)
    assert fast.rate_per_s > 0
    assert [stage.name for stage in fast.stages] == [*STAGES, "send"]
    assert sum(stage.share for stage in fast.stages) == pytest.approx(1)
    assert max(fast.stages, key=lambda stage: stage.share).name == "compute"
    assert sum(point.percentiles.samples for point in fast.points) == 100
    assert max(point.max_ns for point in fast.points) == 50_000
    (version,) = fast.versions
    assert (version.version, version.role, version.engine, version.precision) == ("1", "live", "onnxruntime", "float32")
    assert (version.executor, version.sha256, version.answered) == ("inline", FAST.sha256, 100)
    assert [(bucket.rows, bucket.replays) for bucket in version.buckets] == [(1, 100), (2, 0), (4, 0)]
    assert (slow.latency.samples, slow.latency.p50_ns, slow.points) == (0, 0, ())


def test_versions_of_a_model_are_one_model(writer: RecordWriter, observer: Observing) -> None:
    retired = msgspec.structs.replace(FAST, role="retired")
    newer = [msgspec.structs.replace(FAST, version=str(number), role="retired") for number in range(2, 9)]
    live = msgspec.structs.replace(FAST, version="9")
    writer.describe(CoreDescription(os.getpid(), (retired, SLOW, *newer, live)))
    write(writer, 0, [50_000] * 3)
    write(writer, 9 - 1, [50_000] * 2)
    fast = model(observer, "fast")
    assert fast.latency.samples == 5
    assert fast.live == "9"
    assert [version.version for version in fast.versions] == ["9", "8", "7", "6", "5"]


def test_everything_in_status_is_a_number_or_text_and_never_nan(writer: RecordWriter, observer: Observing) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(observer.get("/status.json")[1], parse_constant=refuse)
    write(writer, 0, [0, 1, 10**12])
    json.loads(observer.get("/status.json")[1], parse_constant=refuse)
    json.loads(observer.get("/slow")[1], parse_constant=refuse)


def test_no_inputs_and_no_outputs_reach_the_observer(writer: RecordWriter, observer: Observing) -> None:
    """A record's fields are all that there is: numbers about a request, and none of what it asked or was told."""
    write(writer, 0, [50_000])
    (request,) = json.loads(observer.get("/slow")[1])["requests"]
    told = set(request) - {"stages", "why", "usual_ns", "duration_ns", "age_s", "stamps_ns", "model", "executor"}
    assert told == {"id", "version", "bucket", "rows", "session", "queued", "event_time_ns"}


def test_the_slowest_requests_and_the_events_around_them(writer: RecordWriter, observer: Observing) -> None:
    write(writer, 0, list(np.full(50, 50_000)))
    write(writer, 0, [9_000_000])
    first_ns = 10**12  # where observing.write begins each of its requests
    writer.event(EventKind.GC, first_ns + 1_000_000, first_ns + 4_000_000, 100)
    report = msgspec.json.decode(observer.get("/slow?count=1")[1], type=SlowReport)
    (slowest,) = report.requests
    assert slowest.duration_ns == 9_000_000
    assert slowest.usual_ns == pytest.approx(50_000, rel=0.01)
    assert slowest.why.startswith("compute 9 ms (usually 49.9 µs)")
    assert slowest.why.endswith("the garbage collector ran for 3 ms of it")


@pytest.mark.parametrize("query", ["count=0", "count=201", "count=x", "colour=red"])
def test_slow_refuses_what_it_does_not_know_in_one_line(observer: Observing, query: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        observer.get(f"/slow?{query}")
    with refused.value as error:
        assert (error.code, error.read().decode().count("expected")) == (400, 1)


def test_a_fresh_observer_answers_before_anything_has_happened() -> None:
    writer = RecordWriter()
    with observing(writer) as observer:
        assert status(observer).models == ()
        assert json.loads(observer.get("/slow")[1])["requests"] == []
        assert run("slow", "--observer", observer.url).output.startswith("no request was answered")
        assert run("top", "--once", "--observer", observer.url).exit_code == 0
    writer.close()


def test_top_tells_warm_up_apart_from_errors(writer: RecordWriter, observer: Observing) -> None:
    def errors(name: str) -> str:
        printed = run("top", "--once", "--observer", observer.url).output
        (row,) = (line for line in printed.splitlines() if line.strip("│| ").startswith(name))
        return row.split()[-1] + (" warm-up" if "feeds 0 (warm-up: 1,200 ticks)" in printed else "")

    assert errors("fast") == "0"
    for _ in range(1_200):
        writer.refused(0, Code.NOT_READY)
    assert errors("fast") == "1,200"
    writer.add_version(0, VersionCell.WARM_UP, 1_200)
    assert errors("fast") == "0 warm-up"


def test_top_once_prints_models_and_stages(writer: RecordWriter, observer: Observing) -> None:
    writer.set_cell(GlobalCell.STATE, State.READY)
    write(writer, 0, [50_000] * 100)
    printed = run("top", "--once", "--observer", observer.url)
    assert printed.exit_code == 0
    for what in (f"core {os.getpid()} ready", "fast", "slow", *STAGES, "send", "p99.9", "queued", "misses", "loop lag"):
        assert what in printed.output
    one = run("top", "--once", "--model", "slow", "--observer", observer.url.removeprefix("http://"))
    assert "fast" not in one.output
    unknown = run("top", "--once", "--model", "btc", "--observer", observer.url)
    assert (unknown.exit_code, "served are: fast, slow" in unknown.output) == (1, True)


def test_slow_prints_stages_and_causes_in_words(writer: RecordWriter, observer: Observing) -> None:
    write(writer, 0, [50_000] * 50 + [9_000_000])
    printed = run("slow", "--count", "2", "--observer", observer.url)
    assert printed.exit_code == 0
    assert "fast@1" in printed.output
    assert "  1  compute 9 ms (usually" in printed.output
    as_json = run("slow", "--count", "2", "--json", "--observer", observer.url)
    assert len(json.loads(as_json.output)["requests"]) == 2
    other = run("slow", "--model", "[btc]", "--observer", observer.url)
    assert (other.exit_code, other.output.split(" was ")[0]) == (0, "no request of model '[btc]'")


@pytest.mark.parametrize("command", [["top", "--once"], ["slow"]])
def test_where_no_observer_is_a_line_says_what_to_do(command: list[str]) -> None:
    failed = run(*command, "--observer", f"127.0.0.1:{free_port()}")
    assert failed.exit_code == 1
    for what in ("no observer answers at", "is `tickpath serve` running there", "--no-observer", "--observer"):
        assert what in failed.output


@pytest.mark.parametrize("command", [["top", "--once"], ["slow"]])
def test_what_speaks_no_http_is_no_observer(command: list[str]) -> None:
    """As the port at which predictions are asked for."""

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(10_000)
            connection.sendall(b"\x04\x00\x00\x00\x01abc\n")

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        failed = run(*command, "--observer", f"127.0.0.1:{listener.getsockname()[1]}")
        answered.result(60)
    assert failed.exit_code == 1
    assert "(what came is no HTTP)" in failed.output


@pytest.mark.parametrize("url", ["ftp://there", "http://", "unix:/tmp/s", "http://a?b"])
def test_what_is_no_observers_address_is_refused(url: str) -> None:
    assert run("slow", "--observer", url).exit_code == 2


def test_top_wants_a_terminal() -> None:
    refused = run("top")
    assert (refused.exit_code, "--once" in refused.output) == (2, True)


class Terminal:
    """A command in a terminal of 40 lines, and what it has written there."""

    def __init__(self, *arguments: str) -> None:
        main, theirs = pty.openpty()
        environment = os.environ | {"TERM": "xterm-256color", "LINES": "40", "COLUMNS": "140"}
        command = [sys.executable, "-m", "tickpath.cli", *arguments]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment, text=True
        )
        os.close(theirs)
        self._main = main
        self.written = ""

    def wait_for(self, text: str) -> None:
        """Until this has been written, from now on."""
        self.written = ""
        while text not in self.written:
            self.written += os.read(self._main, 1 << 16).decode(errors="replace")

    def end(self) -> tuple[int, str]:
        """Ctrl-C. Returns the exit code and what is on stderr."""
        self.process.send_signal(signal.SIGINT)
        while True:
            try:
                self.written += os.read(self._main, 1 << 16).decode(errors="replace")
            except OSError:  # nobody has the other end any more
                break
        errors = self.process.communicate()[1]
        return self.process.returncode, errors

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._main)


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    shown = Terminal(*arguments)
    try:
        yield shown
    finally:
        shown.close()


def test_top_lives_until_ctrl_c_and_leaves_the_terminal_as_it_was(writer: RecordWriter, observer: Observing) -> None:
    write(writer, 0, [50_000] * 100)
    with terminal("top", "--every", "0.1", "--observer", observer.url) as top:
        top.wait_for("compute")
        observer.process.send_signal(signal.SIGKILL)
        top.wait_for("STALE")
        code, errors = top.end()
        assert (code, errors) == (0, "")
        assert "\x1b[?1049l" in top.written  # the other screen is left
        assert "\x1b[?25h" in top.written  # and the cursor is shown


def test_top_of_more_models_than_lines_shows_the_busiest_and_says_so(writer: RecordWriter, observer: Observing) -> None:
    writer.describe(CoreDescription(os.getpid(), tuple(msgspec.structs.replace(FAST, name=f"m{n}") for n in range(64))))
    writer.set_cell(GlobalCell.STATE, State.READY)
    for place in range(40, 64):
        write(writer, place, [50_000] * 20)
    with terminal("top", "--every", "0.1", "--observer", observer.url) as top:
        shown = ""
        for _ in range(3):  # a read may end within a look
            top.wait_for("ctrl-C ends")
            shown += top.written
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
        assert "32 more models, less busy than these" in text  # of 40 lines
        assert set(re.findall(r"\bm[0-9]+\b", text)) == {f"m{number}" for number in (*range(8), *range(40, 64))}
        observer.process.send_signal(signal.SIGKILL)
        stale = ""
        for _ in range(3):
            top.wait_for("STALE")
            stale += top.written
        assert "33 more models" in stale  # one has made room for that line
        assert "ctrl-C ends" in stale  # the last line
        assert top.end() == (0, "")


def test_the_index_says_where_all_this_is(observer: Observing) -> None:
    index = get(f"{observer.url}/")[1]
    for path in ("/status.json", "/slow", "tickpath top", "tickpath slow"):
        assert path in index
    assert MODELS.pid == os.getpid()
    wait_until(lambda: status(observer).core.context_switches["voluntary"] > 0, "context switches are seen")
