"""A tickpath server as a child process, on ports of its own choosing."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tickpath.console.errors import ConsoleError
from tickpath.server.ready import Ready

# From start to ready: importing, loading and capturing a zoo model takes a second; a loaded machine may take many.
READY_S = 60.0
# From SIGTERM to the end: the server's own drain limit is 5 s.
STOP_S = 15.0


@contextmanager
def server_process(model: Path, log: Path, *flags: str) -> Iterator[Ready]:
    """A server that serves `model` while the block runs, with `flags` of `tickpath serve`; what it says goes to `log`.
    It is stopped with SIGTERM however the block ends, and must then exit with 0. Raises ConsoleError."""
    command = [sys.executable, "-m", "tickpath.cli", "serve", str(model), "--port=0", "--json", *flags]
    command += [] if "--no-observer" in flags else ["--observer-port=0"]
    # A process group of its own: Ctrl-C is for us, and we end the server when we have read what we want from it.
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, process_group=0
        ) as process,
    ):
        try:
            yield _wait_ready(process, log)
        finally:
            _stop(process)
    if process.returncode != 0:
        raise ConsoleError(f"the server ended with {process.returncode}, 0 is right{_last_words(log)}")


def _wait_ready(process: subprocess.Popen[bytes], log: Path) -> Ready:
    assert process.stdout is not None
    line, deadline_s = b"", time.monotonic() + READY_S
    while not line.endswith(b"\n"):
        waiting_s = deadline_s - time.monotonic()
        if waiting_s <= 0 or not select.select([process.stdout], [], [], waiting_s)[0]:
            raise ConsoleError(f"the server was not ready after {READY_S:.0f} s{_last_words(log)}")
        piece = os.read(process.stdout.fileno(), 4096)
        if not piece:
            raise ConsoleError(f"the server ended with {process.wait()} before it was ready{_last_words(log)}")
        line += piece
    return msgspec.json.decode(line.splitlines()[0], type=Ready)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)  # it may be stopped
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _last_words(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"; it said: {last.strip()}" if last else ""
