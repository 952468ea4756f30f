"""Where hostile clients meet a server: models that are each awkward in their own way, and a client that keeps every
rule beside them, whose answers must not suffer."""

import enum
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from onnx import helper
from tests.inputs import inputs_root
from tests.integration.observer.observing import Scrape
from tests.onnx_models import constant, gru, model, one_node, save, value
from tests.peer import Peer
from tests.serving import RunningServer, write_zoo
from tests.waiting import wait_until

from tickpath.wire import Code, Failure, Infer, Result, ServerMessage

ECHO_FLOATS: Final = 64
WIDE_FLOATS: Final = 64 * 1024
SLOW_FLOATS: Final = 4
WAIT_S_MAX: Final = 30

# What a server may write to its log during one test: enough to say what happened, too little to fill a disk.
LOG_LINES_MAX: Final = 20


class Model(enum.IntEnum):
    """The models and their handles."""

    ECHO = 0  # inline: what comes goes
    WIDE = 1  # the same, 256 KiB a row
    SLOW = 2  # on a thread, some milliseconds a request: its input, and what took so long
    CROWDED = 3  # the same, with a queue of 4
    BOOLS = 4  # takes booleans
    PASSING = 5  # the echo, NaN allowed
    TWO = 6  # a GRU of two inputs
    GRU = 7
    LSTM_A = 8
    GONNX = 9  # only where the real models are


def write_models(folder: Path) -> list[dict[str, Any]]:
    """The configuration entries of all models, in the order of their handles."""
    write_zoo(folder, "null", "gru", "lstm_a")
    slow = str(save(_slow(), folder, "slow.onnx"))
    wide = str(save(one_node("Identity", np.float32, ["N", WIDE_FLOATS]), folder, "wide.onnx"))
    models: list[dict[str, Any]] = [
        {"path": str(folder / "null.onnx"), "name": "echo", "executor": "inline"},
        {"path": wide, "buckets": [1, 64], "executor": "inline", "non_finite": "pass"},
        {"path": slow, "executor": "thread", "buckets": [1]},
        {"path": slow, "name": "crowded", "executor": "thread", "buckets": [1], "queue_max": 4},
        {"path": str(save(one_node("Not", bool, ["N", 4]), folder, "bools.onnx"))},
        {"path": str(folder / "null.onnx"), "name": "passing", "non_finite": "pass"},
        {"path": str(save(gru(), folder, "two.onnx"))},
        {"path": str(folder / "gru.onnx")},
        {"path": str(folder / "lstm_a.onnx")},
    ]
    if (root := inputs_root()) is not None:
        shapes = {"data_input": ["N", 4, 3], "init_hidden": [1, "N", 5]}
        models.append({"path": str(root / "models/gonnx/gru.onnx"), "name": "gonnx", "shapes": shapes})
    return models


def _slow() -> Any:
    """One 4 MiB matrix sixteen times over, which no cache near the core holds; and the input as it came."""
    size = 1024
    names = [f"h{i}" for i in range(17)]
    nodes = [helper.make_node("Identity", ["x"], ["echo"]), helper.make_node("MatMul", ["x", "widen"], [names[0]])]
    nodes += [helper.make_node("MatMul", [a, "w"], [b]) for a, b in pairwise(names)]
    nodes.append(helper.make_node("ReduceMax", [names[-1], "axis"], ["slow"]))
    random = np.random.default_rng(0)
    return model(
        nodes,
        [value("x", np.float32, ["N", SLOW_FLOATS])],
        [value("echo", np.float32, ["N", SLOW_FLOATS]), value("slow", np.float32, ["N", 1])],
        [
            constant("widen", random.standard_normal((SLOW_FLOATS, size))),
            constant("w", random.standard_normal((size, size)) / size**0.5),
            constant("axis", [1], np.int64),
        ],
    )


def floats(number: int, count: int) -> bytes:
    """`count` float32 that no other number has."""
    return (np.arange(count, dtype=np.float32) + np.float32(number % 2**23)).tobytes()


def echo(request_id: int, **changes: Any) -> Infer:
    """A request to the echo model, told apart by its content; `changes` make it bad."""
    fields: dict[str, Any] = {"inputs": [floats(request_id, ECHO_FLOATS)], "handle": Model.ECHO, "rows": 1}
    return Infer(request_id, **(fields | changes))


def slow(request_id: int, handle: Model = Model.SLOW) -> Infer:
    return Infer(request_id, handle, 1, [memoryview(floats(request_id, SLOW_FLOATS))])


def wide(request_id: int, rows: int = 1) -> Infer:
    return Infer(request_id, Model.WIDE, rows, [memoryview(floats(request_id, WIDE_FLOATS * rows))])


def is_answer(reply: ServerMessage | None, request: Infer) -> bool:
    """Whether a reply is the Result of that request: each model that is asked so gives its input back first."""
    return isinstance(reply, Result) and reply.id == request.id and reply.outputs[0] == request.inputs[0]


def expect_answers(peer: Peer, *requests: Infer) -> None:
    """The next replies answer these, in this order."""
    for request in requests:
        reply = peer.receive()
        assert is_answer(reply, request), str(reply)[:300]


def gather(peer: Peer, *requests: Infer) -> list[Failure]:
    """The replies to these, in whatever order: a right Result or a Failure each. Returns the failures as they came."""
    waiting = {request.id: request for request in requests}
    failures = []
    for _ in requests:
        reply = peer.receive()
        assert isinstance(reply, Result | Failure), str(reply)[:300]
        request = waiting.pop(reply.id)
        if isinstance(reply, Failure):
            failures.append(reply)
        else:
            assert is_answer(reply, request), str(reply)[:300]
    return failures


def expect_failure(peer: Peer, request_id: int, code: Code) -> str:
    """The next reply refuses this request so. Returns its message."""
    reply = peer.receive()
    assert isinstance(reply, Failure), str(reply)[:300]
    assert (reply.id, reply.code) == (request_id, code), reply
    assert 20 < len(reply.message) < 400
    return reply.message


def expect_end(peer: Peer, code: Code) -> str:
    """The next reply refuses the session so, and is the last. Returns its message."""
    message = expect_failure(peer, 0, code)
    assert peer.receive() is None
    return message


@contextmanager
def crowd(server: RunningServer, count: int) -> Iterator[list[Peer]]:
    """So many connections that say nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(Peer(server.connect())) for _ in range(count)]


def scrape(server: RunningServer) -> Scrape:
    assert server.ready.observer is not None
    with urllib.request.urlopen(f"{server.ready.observer}/metrics", timeout=WAIT_S_MAX) as response:
        return Scrape(response.read().decode())


def in_flight(metrics: Scrape) -> float:
    """Over all models."""
    return sum(sample.value for sample in metrics.samples if sample.name == "tickpath_in_flight")


class Neighbour:
    """A client that keeps every rule: on a thread of its own, over TCP and a Unix socket in turn, it asks and compares
    each answer."""

    def __init__(self, server: RunningServer) -> None:
        self._peers = [Peer(server.connect()), Peer(server.connect_unix())]
        self._stop = threading.Event()
        self._asked = 0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work)

    def ask(self) -> None:
        for peer in self._peers:
            self._asked += 1
            request = echo(self._asked)
            peer.send(request)
            expect_answers(peer, request)

    def _work(self) -> None:
        try:
            while not self._stop.wait(0.002):
                self.ask()
        except BaseException as error:
            self._error = error

    def pause(self) -> None:
        """Ask no more, unless by `ask`."""
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Self:
        for peer in self._peers:
            peer.greet()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pause()
        try:
            if self._error is not None:
                raise self._error
            self.ask()
        finally:
            for peer in self._peers:
                peer.close()


@contextmanager
def unharmed(server: RunningServer) -> Iterator[None]:
    """What happens in the block must not hurt: a neighbour gets all its answers, and afterwards nobody is connected,
    nothing is in flight, and the log is short and holds no traceback."""
    log_chars = len(server.log.read_text())
    with Neighbour(server):
        yield
    assert server.process.poll() is None
    if server.ready.observer is not None:
        wait_until(lambda: _at_rest(scrape(server)), "no session and nothing in flight")
    said = server.log.read_text()[log_chars:]
    assert "Traceback" not in said
    assert "rror" not in said
    assert said.count("\n") <= LOG_LINES_MAX


def _at_rest(metrics: Scrape) -> bool:
    return metrics.value("tickpath_sessions") == 0 and in_flight(metrics) == 0
