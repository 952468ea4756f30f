"""What a real server tells its service manager, on a real socket."""

import os
import signal
from pathlib import Path
from time import monotonic_ns

import pytest
from tests.deploy.service_manager import Manager, manager
from tests.processes import children, wait_until_ended
from tests.secured import secured
from tests.serving import RunningServer, serve, write_zoo

from tickpath.server.sd_notify import ServiceManager

WATCHDOG_S = 2


def environment_of(pid: int) -> set[str]:
    """The names of the variables that a process was started with."""
    return {entry.partition(b"=")[0].decode() for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}


def feeds(heard: list[dict[str, str]]) -> int:
    return sum(datagram == {"WATCHDOG": "1"} for datagram in heard)


def test_the_life_of_a_server_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a socket of an abstract name; the other tests have one in a folder."""
    models = write_zoo(tmp_path, "null")
    with manager(None) as systemd:
        monkeypatch.setenv("NOTIFY_SOCKET", systemd.address)
        monkeypatch.setenv("WATCHDOG_USEC", str(WATCHDOG_S * 1_000_000))
        with serve(tmp_path, models, observer_port=0) as server:
            monkeypatch.undo()
            check_ready(systemd, server)
            check_reload(systemd, server)
            server.process.send_signal(signal.SIGTERM)
            assert systemd.hear_until("STOPPING")[-1] == {"STOPPING": "1"}


def check_ready(systemd: Manager, server: RunningServer) -> None:
    """READY comes first, when it serves; the watchdog is fed from then on; and no child knows of either."""
    heard = systemd.hear_until("READY")
    assert heard[-1]["READY"] == "1"
    assert server.address in heard[-1]["STATUS"]
    assert len(heard) - feeds(heard) == 1
    for _ in range(3):
        assert systemd.hear() == {"WATCHDOG": "1"}
    below = children(server.ready.pid)
    assert below
    for child in below:
        assert environment_of(child).isdisjoint({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})


def check_reload(systemd: Manager, server: RunningServer) -> None:
    """SIGHUP is answered by RELOADING with the time, which a unit of Type=notify-reload waits for, and READY."""
    before_us = monotonic_ns() // 1000
    server.process.send_signal(signal.SIGHUP)
    begun = systemd.hear_until("RELOADING")[-1]
    assert before_us <= int(begun["MONOTONIC_USEC"]) <= monotonic_ns() // 1000
    assert systemd.hear_until("READY")[-1] == {"READY": "1"}


def test_a_reload_takes_as_long_as_tokens_take_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RELOADING comes before them and READY behind them. A pipe in the file's place is not waited for: it changes
    nothing, and READY comes all the same."""
    with manager(tmp_path) as systemd:
        monkeypatch.setenv("NOTIFY_SOCKET", systemd.address)
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
        with secured(tmp_path, write_zoo(tmp_path, "null")) as server:
            systemd.hear_until("READY")
            tokens = tmp_path / "desk.token"

            def reload() -> None:
                server.server.process.send_signal(signal.SIGHUP)
                assert "RELOADING" in systemd.hear()
                assert systemd.hear() == {"READY": "1"}

            tokens.write_text("the-new-token-of-the-desk\n")
            reload()
            with server.client("desk", token="the-new-token-of-the-desk") as desk:
                desk.ping()
            tokens.unlink()
            os.mkfifo(tokens, 0o600)
            reload()
            with server.client("desk", token="the-new-token-of-the-desk") as desk:
                desk.ping()
            log = server.server.log.read_text()
            assert "tokens and certificates stay as they were" in log
            assert "a fault of the server" not in log


def test_a_loop_that_stands_still_does_not_feed_the_watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP is as still as a loop can stand; what was fed before is all there is."""
    models = write_zoo(tmp_path, "null")
    with manager(tmp_path) as systemd:
        monkeypatch.setenv("NOTIFY_SOCKET", systemd.address)
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        with serve(tmp_path, models, exit_code=None) as server:
            systemd.hear_until("READY")
            assert systemd.hear() == {"WATCHDOG": "1"}
            os.kill(server.ready.pid, signal.SIGSTOP)
            fed = systemd.count_until_silent(2.0)
            assert fed <= 2  # on their way when it stopped
            os.kill(server.ready.pid, signal.SIGKILL)
            wait_until_ended(server.ready.pid)


def test_nothing_is_told_where_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager that went away, or whose address is none of ours: said once, and it serves all the same."""
    models = write_zoo(tmp_path, "null")
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    for address, said in (
        (str(tmp_path / "gone"), "the manager can't be told READY=1"),
        ("/" + "x" * 200, "the manager can't be told READY=1: AF_UNIX path too long"),
        ("vsock:2:1", "is not told anything"),
    ):
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        with serve(tmp_path, models) as server:
            server.connect().close()
        assert server.log.read_text().count(said) == 1
        assert server.log.read_text().count("NOTIFY_SOCKET") == 1


def test_variables_are_taken_out_and_another_process_s_watchdog_is_left_alone(tmp_path: Path) -> None:
    with manager(tmp_path) as systemd:
        environment = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1", "HOME": "/"}
        mine = ServiceManager.of(environment)
        assert environment == {"HOME": "/"}
        mine.feed(monotonic_ns())
        mine.ready("here")
        assert systemd.hear() == {"READY": "1", "STATUS": "here"}
        mine.close()


def test_before_it_serves_and_after_a_reload_tells_nothing(tmp_path: Path) -> None:
    """READY from a reload that ended early would say that requests are taken."""
    with manager(tmp_path) as systemd:
        mine = ServiceManager(systemd.address)
        with mine.reloading():
            mine.ready("here")
        with mine.reloading():
            mine.stopping()
        heard = [next(iter(systemd.hear())) for _ in range(4)]
        assert heard == ["READY", "READY", "RELOADING", "STOPPING"]
        mine.close()


def test_the_watchdog_is_fed_twice_in_its_time_and_no_more(tmp_path: Path) -> None:
    with manager(tmp_path) as systemd:
        mine = ServiceManager(systemd.address, watchdog_ns=2_000_000_000)
        for turn in range(40):  # four seconds of the housekeeping's turns
            mine.feed(10**12 + turn * 100_000_000)
        mine.stopping()
        assert feeds(systemd.hear_until("STOPPING")) == 4
        mine.close()


def test_a_manager_that_is_busy_is_told_later(tmp_path: Path) -> None:
    """The kernel keeps some datagrams, ten on most machines. A feed more or less is no matter, but for want of READY a
    unit is ended as one that did not start."""
    with manager(tmp_path) as systemd:
        mine = ServiceManager(systemd.address, watchdog_ns=2)
        for turn in range(5000):
            mine.feed(turn)
        mine.ready("here")
        mine.stopping()
        kept = systemd.count_until_silent(0.1)
        assert kept < 5000
        mine.feed(0)
        assert [next(iter(systemd.hear())) for _ in range(2)] == ["READY", "STOPPING"]
        mine.close()


def test_without_a_manager_nothing_is_opened() -> None:
    before = set(os.listdir("/proc/self/fd"))
    mine = ServiceManager.of({})
    mine.ready("here")
    mine.feed(monotonic_ns())
    assert set(os.listdir("/proc/self/fd")) <= before
