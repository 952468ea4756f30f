"""A real `tickpath serve` as a child process, and a bare peer that speaks the wire to it."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.peer import Peer

from tickpath.engines.zoo import build
from tickpath.server.ready import Ready


class RunningServer:
    """A server that is ready. Leave it running: `serve` stops it and checks how it ended."""

    def __init__(self, process: subprocess.Popen[str], ready: Ready, log: Path) -> None:
        self.process = process
        self.ready = ready
        self.log = log

    @property
    def address(self) -> str:
        return self.ready.address

    @property
    def uds(self) -> str:
        assert self.ready.uds is not None
        return self.ready.uds

    def connect(self) -> socket.socket:
        """A bare TCP connection, nothing said."""
        host, _, port = self.address.removeprefix("tls://").rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout=20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def connect_unix(self) -> socket.socket:
        """The same over its Unix socket."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(20)
        connection.connect(self.uds.removeprefix("unix:"))
        return connection

    def peer(self) -> Peer:
        """A peer that has said Hello and been welcomed."""
        peer = Peer(self.connect())
        peer.greet()
        return peer

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self.ready.pid}/statm").read_text().split()[1]) * 4096

    def cpu_s(self) -> float:
        """Processor time used so far, user and system."""
        fields = Path(f"/proc/{self.ready.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def write_config(folder: Path, models: Sequence[Mapping[str, Any]], **settings: Any) -> Path:
    """A configuration file; JSON's scalars and arrays are TOML's too."""
    lines = [f"{key} = {_toml(value)}" for key, value in settings.items()]
    for model in models:
        lines.append("[[models]]")
        lines += [f"{key} = {_toml(value)}" for key, value in model.items()]
    path = folder / "tickpath.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


def write_zoo(folder: Path, *names: str) -> list[dict[str, str]]:
    """Zoo models as files, and the configuration entries that serve them."""
    for name in names:
        (folder / f"{name}.onnx").write_bytes(build(name).SerializeToString())
    return [{"path": str(folder / f"{name}.onnx")} for name in names]


@contextmanager
def serve(
    folder: Path,
    models: Sequence[Mapping[str, Any]],
    *,
    flags: Sequence[str] = (),
    prefix: Sequence[str] = (),
    exit_code: int | None = 0,
    process_group: int | None = None,
    **settings: Any,
) -> Iterator[RunningServer]:
    """A server of `models` on a free TCP port and a Unix socket, without an observer unless `settings` say so.

    `prefix`: a command that runs it. `exit_code`: what it must end with after SIGTERM (None: the test ends it itself).
    `process_group`: 0 gives it one of its own, as a shell does for what runs in the foreground.
    """
    defaults: dict[str, Any] = {"port": 0, "uds": str(folder / "s")}
    if "observer_port" not in settings:
        flags = [*flags, "--no-observer"]
    config = write_config(folder, models, **(defaults | settings))
    command = [*prefix, sys.executable, "-m", "tickpath.cli", "serve", "--config", str(config), "--json", *flags]
    log = folder / "server.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, process_group=process_group
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"the server ended with {process.wait()}: {log.read_text()}"
            yield RunningServer(process, msgspec.json.decode(line, type=Ready), log)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    if exit_code is not None:
        assert process.returncode == exit_code, log.read_text()
