"""What a fault did to a server, in figures."""

import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.integration.faults.innocent import Innocent
from tests.onnx_models import save
from tests.onnx_models import slow as slow_model
from tests.peer import Peer
from tests.serving import RunningServer, write_zoo
from tests.waiting import wait_until

from tickpath.wire import Failure, Infer, Result

RSS_BYTES_MAX: Final = 64 << 20
"""That a fault may leave behind: 2,000 connections with a buffer and a transport each have far less."""


class Usage:
    """A process' memory and descriptors, now."""

    def __init__(self, pid: int) -> None:
        self.rss_bytes = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
        self.descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))


class Seen:
    """Before and after a fault."""

    def __init__(self, pid: int) -> None:
        self.before = self.after = Usage(pid)

    def told(self) -> str:
        rss_mib = (self.after.rss_bytes - self.before.rss_bytes) / 2**20
        return f"RSS {rss_mib:+.1f} MiB, descriptors {self.before.descriptors} -> {self.after.descriptors}"


@contextmanager
def usage(pid: int) -> Iterator[Seen]:
    """What the fault in the block leaves behind: no descriptor, and little memory."""
    seen = Seen(pid)
    yield seen
    wait_until(lambda: Usage(pid).descriptors <= seen.before.descriptors, "all descriptors are closed again")
    seen.after = Usage(pid)
    assert seen.after.rss_bytes - seen.before.rss_bytes < RSS_BYTES_MAX


def row(fault: str, outcomes: Counter[str], client: Innocent, *seen: Seen) -> str:
    """A line of the table."""
    ended = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    usages = "; ".join(each.told() for each in seen)
    return f"{fault:<36} {ended:<64} {client.told():<66} {usages}"


def outcome(peer: Peer) -> str:
    """The name of the next message, or of its code, or how the connection ended without one."""
    try:
        message = peer.receive()
    except TimeoutError:
        return "nothing"
    except OSError:
        return "reset"
    if message is None:
        return "ended"
    return message.code.name if isinstance(message, Failure) else type(message).__name__


def replies(peer: Peer, count: int) -> dict[int, str]:
    """The next replies by their requests: `Result`, or a code's name."""
    found = {}
    for _ in range(count):
        reply = peer.receive()
        assert isinstance(reply, Result | Failure), reply
        found[reply.id] = reply.code.name if isinstance(reply, Failure) else "Result"
    return found


@contextmanager
def crowd(server: RunningServer, count: int, words: bytes) -> Iterator[list[Peer]]:
    """So many connections, all open at once, each of which has said this."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        peers = []
        for _ in range(count):
            peers.append(stack.enter_context(Peer(server.connect())))
            with suppress(OSError):  # it was refused already
                peers[-1].socket.sendall(words)
        yield peers


def write_models(folder: Path) -> list[dict[str, Any]]:
    """`echo`, inline, and `slow`, which takes many times what a round trip does, on its thread."""
    path = save(slow_model(20_000), folder, "slow.onnx")
    write_zoo(folder, "null")
    echo = {"path": str(folder / "null.onnx"), "name": "echo", "executor": "inline"}
    return [echo, {"path": str(path), "buckets": [1], "executor": "thread", "queue_max": 256}]


def slow(request_id: int, budget_ns: int = 0) -> Infer:
    """One of `slow`."""
    return Infer(request_id, 1, 1, [memoryview(b"\0\0\x80\x3f")], budget_ns)
