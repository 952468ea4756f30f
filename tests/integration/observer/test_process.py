"""The observer as a process: what it answers over HTTP, to whom, and its life beside the core's."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest
from tests.integration.observer.observing import Observing, command, observing, write

from tickpath.observe.observer import EXIT_ADDRESS, EXIT_LAYOUT
from tickpath.observe.records import CoreDescription, GlobalCell, RecordWriter, State


def status_of(observer: Observing, method: str, path: str) -> tuple[int, str, str]:
    """(status, body, Allow)"""
    request = urllib.request.Request(observer.url + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode(), ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers.get("Allow", "")


def test_health_follows_the_core(writer: RecordWriter, observer: Observing) -> None:
    assert status_of(observer, "GET", "/livez") == (200, "alive\n", "")
    for state, expected in ((State.STARTING, 503), (State.READY, 200), (State.DRAINING, 503)):
        writer.set_cell(GlobalCell.STATE, state)
        assert status_of(observer, "GET", "/readyz") == (expected, f"{state.name.lower()}\n", "")


def test_the_index_lists_every_page(observer: Observing) -> None:
    index = observer.get("/")[1]
    for path in ("/metrics", "/livez", "/readyz"):
        assert path in index


def test_wrong_paths_and_methods_get_one_line(observer: Observing) -> None:
    status, body, _ = status_of(observer, "GET", "/status")
    assert (status, body.count("\n")) == (404, 1)
    for method in ("POST", "DELETE"):
        status, body, allow = status_of(observer, method, "/metrics")
        assert (status, body.count("\n"), allow) == (405, 1, "GET, HEAD")


def test_head_is_get_without_a_body(observer: Observing) -> None:
    for path in ("/", "/metrics", "/livez"):
        assert status_of(observer, "HEAD", path) == (200, "", "")


def test_nobody_can_keep_others_from_scraping(writer: RecordWriter, observer: Observing) -> None:
    """Idle connections, readers of one byte, garbage and huge heads, all at once and all held."""
    writes = {
        b"": 200,
        b"GET /metrics HTTP/1.1\r\n\r\n": 50,
        b"GET /metrics HTTP/1.1\r\nCookie: ": 20,
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n": 20,
        b"GET / HTTP/1.1\r\nCookie: " + b"x" * 100_000: 20,
    }
    with ExitStack() as stack:
        for sent, count in writes.items():
            for _ in range(count):
                held = stack.enter_context(socket.socket())
                held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                held.connect(("127.0.0.1", observer.port))
                held.send(sent, socket.MSG_DONTWAIT)
                if sent.endswith(b"\r\n\r\n"):
                    assert held.recv(1) == b"H"
        for turn in range(1, 16):
            write(writer, 0, [50_000] * 100)
            scrape = observer.scrape()
            assert scrape.value("tickpath_request_duration_seconds_count", model="fast") == 100 * turn
            assert observer.get("/livez")[1] == "alive\n"
    assert scrape.value("tickpath_records_lost_total") == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_even_with_connections_open(observer: Observing, number: signal.Signals) -> None:
    with socket.create_connection(("127.0.0.1", observer.port)):
        assert observer.get("/livez")[1] == "alive\n"
        observer.process.send_signal(number)
        out, err = observer.process.communicate()
    assert (observer.process.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_imports_ends_it_without_a_word(writer: RecordWriter, number: signal.Signals) -> None:
    _, *arguments = command(writer.fd)
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *arguments],
        pass_fds=(writer.fd,),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        while not (line := process.stderr.readline()).endswith("numpy._utils\n"):
            assert line
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out) == (-number, "")
    assert [line for line in err.splitlines() if not line.startswith("import time:")] == []


CORE = """
import subprocess
from tests.integration.observer.observing import command
from tickpath.observe.records import RecordWriter
writer = RecordWriter()
subprocess.Popen(command(writer.fd), pass_fds=(writer.fd,)).wait()
"""


def test_the_observer_ends_with_its_core() -> None:
    core = subprocess.Popen([sys.executable, "-c", CORE], stdout=subprocess.PIPE, text=True)
    assert core.stdout is not None
    assert json.loads(core.stdout.readline())["observer"]
    core.kill()
    # Both hold the pipe: it ends when the last of them has.
    assert core.stdout.read() == ""
    core.communicate()


def test_an_observer_whose_core_is_gone_ends_at_once() -> None:
    writer = RecordWriter()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    writer.describe(CoreDescription(ended.pid, ()))
    result = subprocess.run(command(writer.fd), pass_fds=(writer.fd,), capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    writer.close()


def test_an_address_in_use_is_one_line_that_names_it(writer: RecordWriter, observer: Observing) -> None:
    result = subprocess.run(
        command(writer.fd, port=observer.port),
        pass_fds=(writer.fd,),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == EXIT_ADDRESS
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert f"127.0.0.1:{observer.port}: Address already in use" in result.stderr


def test_foreign_memory_is_one_line_and_its_own_exit_status() -> None:
    with open("/dev/null") as foreign:
        result = subprocess.run(
            command(foreign.fileno()),
            pass_fds=(foreign.fileno(),),
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == EXIT_LAYOUT
    assert result.stderr.count("\n") == 1
    assert "run core and observer from one release" in result.stderr


def test_it_steps_aside_for_the_core(writer: RecordWriter) -> None:
    cpu = max(os.sched_getaffinity(0))
    with observing(writer, cpus=str(cpu)) as observer:
        theirs = os.sched_getaffinity(observer.process.pid)
        niceness = os.getpriority(os.PRIO_PROCESS, observer.process.pid)
    assert theirs == {cpu}
    assert niceness == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
