"""What tests of recordings share: traffic that is recorded, the recorder's process, and what a recording holds."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from tests.feed_models import FEATURES, Floats, rows, window_model
from tests.processes import children
from tests.repositories import scale
from tests.segments import exchanges_of
from tests.serving import RunningServer
from tests.waiting import wait_until

from tickpath.client import AsyncClient, NotReadyError
from tickpath.playback.exchanges import Exchanges, decode_reply, decode_request
from tickpath.recorder.reading import open_segments
from tickpath.recorder.segments import mapped
from tickpath.wire import ClientMessage, ServerMessage

FLOATS: Final = 3
TICKS: Final = 20


def write_models(folder: Path, factor: float = 2.0, executor: str = "inline", seed: int = 0) -> list[dict[str, Any]]:
    """`scale`, which multiplies, and `window`, which keeps feeds."""
    (folder / "scale.onnx").write_bytes(scale(factor).SerializeToString())
    (folder / "window.onnx").write_bytes(window_model(seed).SerializeToString())
    return [
        {"path": str(folder / "scale.onnx"), "executor": executor},
        {"path": str(folder / "window.onnx"), "executor": executor, "feed": {"mode": "window"}},
    ]


async def ask(address: str, name: str, count: int, in_flight: int = 8) -> list[Floats]:
    """Requests of one session, many in flight; the answers in their order."""
    room = asyncio.Semaphore(in_flight)

    async def one(client: AsyncClient, number: int) -> Floats:
        async with room:
            x = np.full((1 + number % 4, FLOATS), number, np.float32)
            answer: Floats = (await client.infer("scale", {"x": x})).outputs["y"]
            return answer

    async with AsyncClient(address, name=name) as client:
        return list(await asyncio.gather(*(one(client, number) for number in range(count))))


async def tick(address: str, name: str, key: str) -> list[Floats | None]:
    """A feed from its start; None for each tick that came before its window was full."""
    answers: list[Floats | None] = []
    async with AsyncClient(address, name=name) as client:
        feed = await client.open_feed("window", key)
        for row in rows(TICKS):
            try:
                answers.append((await feed.tick(row.reshape(1, FEATURES))).outputs["y"])
            except NotReadyError:
                answers.append(None)
    return answers


def traffic(address: str, count: int = 200, sessions: int = 3) -> int:
    """Several sessions at once, and two feeds. Returns how many requests that were."""

    async def all_of_it() -> None:
        asking = [ask(address, f"desk-{number}", count) for number in range(sessions)]
        ticking = [tick(address, f"feeds-{key}", key) for key in ("ES", "NQ")]
        await asyncio.gather(*asking, *ticking)

    asyncio.run(all_of_it())
    return sessions * count + 2 * (TICKS + 1)


def recorder_of(server: RunningServer) -> int:
    """The process id of the recorder, which may be on its way back."""

    def found() -> list[int]:
        return [pid for pid in children(server.ready.pid) if b"tickpath.recorder" in command_of(pid)]

    (pid,) = wait_until(found, "a recorder")
    return pid


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def index(folder: Path) -> Exchanges:
    """All that a recording holds."""
    return exchanges_of(open_segments([folder]))


def messages(exchanges: Exchanges) -> list[tuple[str, ClientMessage, ServerMessage | None]]:
    """(client, request, reply) for each request."""
    files = [mapped(segment.path) for segment in exchanges.segments]
    found = []
    for each in exchanges:
        if not each.is_request:
            continue
        request = decode_request(files[each.segment][each.offset : each.offset + each.length])
        assert request is not None
        reply = None
        if each.reply_length:
            body = files[each.reply_segment][each.reply_offset : each.reply_offset + each.reply_length]
            reply = decode_reply(body)
        found.append((exchanges.session(each).client, request, reply))
    return found


def replay(*arguments: str, exit_code: int = 0) -> Mapping[str, Any]:
    """`tickpath replay ... --json -`: what it reports."""
    command = [sys.executable, "-m", "tickpath.cli", "replay", *arguments, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == exit_code, (done.returncode, done.stdout[-2000:], done.stderr)
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def inode(path: Path) -> int:
    return os.stat(path).st_ino
