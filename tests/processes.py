"""What a test asks of the machine about processes and addresses."""

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

WAIT_S_MAX = 30


def serve_until_end(*arguments: str) -> tuple[int, list[str]]:
    """`tickpath serve` with what must not start: its exit code, and the lines it printed on stderr."""
    command = [sys.executable, "-m", "tickpath.cli", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def observers(port: int) -> list[int]:
    """The process ids of the observers that were told to listen on this port."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if b"tickpath.observe" in words and _settings(words).get("port") == port:
            found.append(int(folder.name))
    return found


def _settings(words: list[bytes]) -> dict[str, Any]:
    """The JSON argument of a process beside the core; nothing where it is of another release."""
    try:
        return cast(dict[str, Any], json.loads(words[words.index(b"tickpath.observe") + 1]))
    except ValueError:
        return {}


def children(pid: int) -> list[int]:
    """The process ids of the children of this process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:  # it has ended
            continue
        if int(parent) == pid:
            found.append(int(folder.name))
    return found


def wait_until_ended(pid: int) -> None:
    """Returns when the process, which need not be our child, is no more."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([pidfd], [], [], WAIT_S_MAX)
        assert ended, f"process {pid} still runs"
    finally:
        os.close(pidfd)
