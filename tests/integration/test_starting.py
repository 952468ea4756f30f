"""A server that starts, or says in one line why not and leaves nothing behind."""

import os
import resource
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.peer import Peer
from tests.processes import children, free_port, observers, serve_until_end, wait_until_ended
from tests.serving import serve, write_zoo

from tickpath.wire import Infer, Result


@pytest.fixture(scope="module")
def null(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a model that starts fast."""
    return write_zoo(tmp_path_factory.mktemp("models"), "null")[0]["path"]


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def errors(lines: list[str]) -> list[str]:
    """The lines of what went wrong; what went right before is also said."""
    assert not [line for line in lines if "Traceback" in line], lines
    return [line for line in lines if " INFO " not in line]


def status(url: str) -> int:
    """The HTTP status of a page; 0 where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return str(response.read().decode())


def test_a_taken_port_is_exit_code_4_and_one_line(null: str, taken: int) -> None:
    port = free_port()
    code, lines = serve_until_end(null, "--port", str(taken), "--observer-port", str(port))
    assert code == 4
    (line,) = lines
    assert line.startswith(f"tickpath: can't listen on 127.0.0.1:{taken}: Address already in use")
    assert observers(port) == []


def test_a_taken_observer_port_is_too_and_the_server_ends(null: str, taken: int, tmp_path: Path) -> None:
    uds = tmp_path / "s"
    port = free_port()
    code, lines = serve_until_end(null, "--port", str(port), "--uds", str(uds), "--observer-port", str(taken))
    assert code == 4
    (line,) = lines
    assert line.startswith(f"tickpath: can't listen on 127.0.0.1:{taken}: Address already in use")
    assert "--observer-port" in line
    assert observers(taken) == []
    assert not uds.exists()
    socket.create_server(("127.0.0.1", port)).close()


def test_a_refused_model_is_exit_code_3_and_one_line(null: str, tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    port = free_port()
    flags = ("--port", "0", "--observer-port", str(port))
    code, lines = serve_until_end(str(tmp_path / "empty.onnx"), *flags)
    assert code == 3
    (line,) = lines
    assert "empty.onnx" in line
    assert observers(port) == []

    # The one before it has a thread by then, which must not hold the process up.
    (tmp_path / "two.toml").write_text(
        f"[[models]]\npath = '{null}'\nexecutor = 'thread'\n[[models]]\npath = 'empty.onnx'\n"
    )
    code, lines = serve_until_end("--config", str(tmp_path / "two.toml"), *flags)
    assert code == 3
    (line,) = errors(lines)
    assert "empty.onnx" in line
    assert observers(port) == []


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (("--cpu", "4095"), 2, "--cpu 4095: this process may use"),
        (("--cpu", "-1"), 2, "'--cpu': -1 is not"),
        (("--buckets", "4,2"), 2, "ascend"),
        (("--host", "192.0.2.1", "--insecure"), 4, "192.0.2.1:0"),
        (("--host", "192.0.2.1"), 2, "insecure"),
        (("--uds", "/missing/folder/s"), 4, "/missing/folder/s"),
    ],
    ids=str,
)
def test_what_cannot_be_is_one_line(null: str, flags: tuple[str, ...], code: int, says: str) -> None:
    ended, lines = serve_until_end(null, "--port", "0", "--no-observer", *flags)
    (line,) = errors(lines)
    assert ended == code
    assert says in line


def test_buckets_too_large_to_travel_are_refused_before_they_are_made(null: str, tmp_path: Path) -> None:
    """One request of so many rows would take a frame of 16 MB, and with a real model minutes to warm up."""
    (tmp_path / "c.toml").write_text(
        f"port = 0\nobserver_port = false\nframe_bytes_max = 4096\n[[models]]\npath = '{null}'\nbuckets = [1, 65536]\n"
    )
    code, lines = serve_until_end("--config", str(tmp_path / "c.toml"))
    (line,) = lines
    assert code == 3
    assert "65536 rows" in line
    assert "frame_bytes_max is 4096" in line


def test_it_starts_again_at_once_where_clients_were_connected(null: str, tmp_path: Path) -> None:
    """The server closes first, so the kernel keeps its side of each connection for a minute."""
    port = 0
    for _ in range(2):
        with serve(tmp_path, [{"path": null}], port=port) as server:
            peers = [server.peer() for _ in range(5)]
            port = int(server.address.rpartition(":")[2])
            server.process.send_signal(signal.SIGTERM)
            for peer in peers:
                while peer.receive() is not None:
                    pass
                peer.close()
            assert server.process.wait(30) == 0


def test_what_a_killed_server_left_is_taken_over_and_a_stopped_one_leaves_nothing(null: str, tmp_path: Path) -> None:
    port, observer_port = free_port(), free_port()
    settings: dict[str, Any] = {"port": port, "observer_port": observer_port}
    path = tmp_path / "s"
    with serve(tmp_path, [{"path": null}], exit_code=-signal.SIGKILL, **settings) as server:
        (observer,) = observers(observer_port)
        server.process.kill()
    assert path.is_socket()
    wait_until_ended(observer)
    with serve(tmp_path, [{"path": null}], **settings) as server:
        assert server.uds == f"unix:{path}"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            Peer(connection).greet()
        (observer,) = observers(observer_port)
    assert not path.exists()
    wait_until_ended(observer)


def test_one_socket_is_enough(null: str, tmp_path: Path) -> None:
    with serve(tmp_path, [{"path": null}], port=False) as server:
        assert server.ready.address == server.uds
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(tmp_path / "s"))
            Peer(connection).greet()


@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_hosts_of_either_family_and_by_name(host: str, null: str, tmp_path: Path) -> None:
    with serve(tmp_path, [{"path": null}], host=host, observer_host=host, observer_port=0) as server:
        assert server.address.startswith("[::1]:" if host == "::1" else ("127.", "[::1]:"))
        port = int(server.address.rpartition(":")[2])
        with Peer(socket.create_connection((host, port), timeout=20)) as peer:
            peer.greet()
            peer.send(Infer(1, 0, 1, [memoryview(bytes(256))]))
            assert isinstance(peer.receive(), Result)
        assert status(f"{server.ready.observer}/readyz") == 200


def test_it_is_not_ready_before_it_is(null: str, tmp_path: Path) -> None:
    """The model comes through a pipe, so it loads when we let it."""
    pipe = tmp_path / "slow.onnx"
    os.mkfifo(pipe)
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "tickpath.cli",
        "serve",
        str(pipe),
        "--port=0",
        f"--observer-port={port}",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            with pipe.open("wb") as writer:  # returns when the server has opened the other end
                while (code := status(f"http://127.0.0.1:{port}/readyz")) == 0:
                    assert process.poll() is None
                assert code == 503
                assert status(f"http://127.0.0.1:{port}/livez") == 200
                writer.write(Path(null).read_bytes())
            assert process.stdout is not None
            assert b"ready" in process.stdout.readline()
            while (code := status(f"http://127.0.0.1:{port}/readyz")) != 200:
                assert code == 503, "it reads the state fifty times a second"
        finally:
            process.terminate()
    assert process.returncode == 0


def test_a_pinned_loop_keeps_its_core_to_itself(null: str, tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one processor: nowhere else to go")
    cpu = min(allowed)
    models = [{"path": null, "executor": "thread", "threads": 2}]
    with serve(tmp_path, models, flags=["--cpu", str(cpu)]) as server:
        assert os.sched_getaffinity(server.ready.pid) == {cpu}
        tasks = [int(task.name) for task in Path(f"/proc/{server.ready.pid}/task").iterdir()]
        cpus = list(map(os.sched_getaffinity, tasks))
        assert cpus.count(allowed - {cpu}) == 2, "the model's thread and the one that helps it"
        with server.peer() as peer:
            peer.send(Infer(1, 0, 1, [memoryview(bytes(256))]))
            assert isinstance(peer.receive(), Result)


@pytest.mark.parametrize("field", ["hello_s", "frame_s"])
def test_short_limits_for_clients_do_not_hinder_the_warm_up(field: str, null: str, tmp_path: Path) -> None:
    models = [{"path": null, "buckets": [512]}]
    settings: dict[str, Any] = {field: 1e-6}
    with serve(tmp_path, models, **settings):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_imports_ends_it_without_a_word(null: str, number: signal.Signals) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "tickpath.cli", "serve", null, "--port", "0", "--no-observer"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not (line := process.stderr.readline()).endswith("numpy._utils\n"):
            assert line
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out) == (-number, "")
    assert [line for line in err.splitlines() if not line.startswith("import time:")] == []


# An extension module that is being set up turns whatever is raised into an ImportError of its own.
STOPPED_IN_AN_IMPORT = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Stop(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "onnxruntime":
            try:
                os.kill(os.getpid(), signal.{signal})
            except BaseException:
                raise ImportError("initialization failed")

sys.meta_path.insert(0, Stop())
from tickpath.cli import main
main()
"""


@pytest.mark.parametrize("signal_name", ["SIGTERM", "SIGINT"])
def test_a_start_may_be_stopped_anywhere(signal_name: str, null: str, tmp_path: Path) -> None:
    uds, port = tmp_path / "s", free_port()
    flags = [null, "--port=0", f"--uds={uds}", f"--observer-port={port}"]
    command = [sys.executable, "-c", STOPPED_IN_AN_IMPORT.format(signal=signal_name), "serve", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not uds.exists()
    for observer in observers(port):
        wait_until_ended(observer)


def test_a_server_has_no_file_and_no_thread_that_nobody_asked_for(null: str, tmp_path: Path) -> None:
    """Runtimes may keep databases, and tell their makers what is done with them. Standard files that were closed are
    open: else a socket would get their numbers, and what is printed."""
    closed = ["sh", "-c", 'exec "$0" "$@" <&- 2>&-']
    with serve(tmp_path, [{"path": null}], prefix=closed, observer_port=0) as server:
        folder = Path(f"/proc/{server.ready.pid}")
        files = {entry.name: entry.readlink() for entry in (folder / "fd").iterdir()}
        assert files["0"] == files["2"] == Path("/dev/null")
        on_disk = [file for file in files.values() if file.is_file() and "memfd:" not in str(file)]
        assert on_disk == []
        assert len(list((folder / "task").iterdir())) <= 3, "loop, log, and what waited for the observer"


def test_an_observer_that_cannot_be_started_is_tried_again(null: str, tmp_path: Path) -> None:
    with serve(tmp_path, [{"path": null}], observer_port=0) as server:
        pid = server.ready.pid
        (observer,) = children(pid)
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        os.kill(observer, signal.SIGKILL)
        while "the observer can't be started: Too many open files" not in server.log.read_text():
            assert server.process.poll() is None
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        while status(f"{server.ready.observer}/readyz") != 200:
            assert server.process.poll() is None


def test_a_hangup_while_it_starts_ends_nothing(null: str, tmp_path: Path) -> None:
    """It asks for a reload, as later."""
    command = [sys.executable, "-c", STOPPED_IN_AN_IMPORT.format(signal="SIGHUP")]
    flags = ["serve", null, "--port=0", "--no-observer", "--json"]
    with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.terminate()
        _, err = process.communicate()
    assert (process.returncode, "address" in ready) == (0, True), err
