"""Real models on real market data: thousands of ticks of a book through DeepLOB's window, bars through a GRU as window,
exact and carry, and ticks that come when a real market's records came."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.inputs import inputs_root
from tests.market_data import bar_windows, book_windows
from tests.questions import DEEPLOB, TRADING_BOT
from tests.reference import reference_session
from tests.serving import RunningServer, serve

from tickpath.client import Client, NotReadyError, Prediction
from tickpath.console.streaming import streaming
from tickpath.loadtest.arrivals import read_arrivals

ROOT = inputs_root()
pytestmark = pytest.mark.skipif(ROOT is None, reason="the folder of real inputs is absent (TICKPATH_INPUTS)")

DAY = "market_data/nautilus/databento__esh4-glbx-mdp3-20231225.mbo.dbn.zst"
TICKS = 2000
BARS = 120
# What the replay waits for an answer, on a machine that does other things too.
TIMEOUT_S = 60.0
SILERO = "models/silero_vad/silero_vad_half.onnx"


@pytest.fixture(scope="module")
def root() -> Path:
    assert ROOT is not None
    return ROOT


@pytest.fixture(scope="module")
def server(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("real")
    step = folder / "step.onnx"
    streaming.main([str(root / TRADING_BOT), "-o", str(step)], standalone_mode=False)
    models: list[dict[str, object]] = [
        {"path": str(root / DEEPLOB / "model_b1.onnx"), "name": "deeplob"},
        {"path": str(root / TRADING_BOT), "name": "window"},
        {"path": str(step), "name": "exact"},
        {"path": str(step), "name": "carry", "feed": {"mode": "carry"}},
        {
            "path": str(root / SILERO),
            "name": "silero",
            "shapes": {"input": ["N", 576], "state": [2, "N", 128]},
            "feed": {"state": {"state": "stateN"}},
        },
    ]
    with serve(folder, models) as server:
        yield server


def test_deeplob_answers_thousands_of_ticks_as_the_whole_window(server: RunningServer, root: Path) -> None:
    windows = book_windows(root, TICKS, 100)
    ticks = np.concatenate([windows[0], windows[1:, -1]])
    reference = reference_session(root / DEEPLOB / "model_b1.onnx")
    with Client(server.address, timeout_s=TIMEOUT_S) as client, client.open_feed("deeplob", "BTCUSDT") as feed:
        assert [tensor.bytes_at(1) for tensor in feed.info.inputs] == [160]
        answers = feed.tick_many(ticks)
    assert all(isinstance(each, NotReadyError) for each in answers[:99])
    for window, answer in zip(windows, answers[99:], strict=True):
        assert isinstance(answer, Prediction)
        expected = reference.run(None, {"lob_window": window[None]})[0]
        assert answer["logits"].tobytes() == expected.tobytes()


def test_a_real_recurrent_model_is_exact_as_window_and_as_steps(server: RunningServer, root: Path) -> None:
    bars = bar_windows(root, 9).reshape(-1, 3)  # 1080 rows
    reference = reference_session(root / TRADING_BOT)
    with Client(server.address, timeout_s=TIMEOUT_S) as client:
        for name in ("window", "exact"):
            with client.open_feed(name, "6EH4") as feed:
                answers = feed.tick_many(bars)
            for place in range(BARS - 1, len(bars)):
                answer = answers[place]
                assert isinstance(answer, Prediction)
                window = bars[None, place + 1 - BARS : place + 1]
                (expected,) = reference.run(None, {"input_sequence": window})
                assert answer["next_log_return"].tobytes() == expected.tobytes(), (name, place)


def test_a_real_state_runs_on(server: RunningServer, root: Path) -> None:
    reference = reference_session(root / SILERO)
    state = np.zeros((2, 1, 128), np.float32)
    random = np.random.default_rng(0)
    with Client(server.address, timeout_s=TIMEOUT_S) as client, client.open_feed("silero", "microphone") as feed:
        for _ in range(200):
            chunk = random.standard_normal((1, 576)).astype(np.float32)
            expected, state = reference.run(None, {"input": chunk, "state": state})
            answer = feed.tick(chunk)
            assert list(answer.outputs) == ["output"]
            assert answer["output"].tobytes() == expected.tobytes()


@pytest.mark.parametrize("speed", [10, 100])
@pytest.mark.parametrize("name", ["window", "exact", "carry"])
def test_ticks_that_come_as_a_market_comes(server: RunningServer, root: Path, name: str, speed: int) -> None:
    """Pieces of a day, with their ties and bursts; sooner than they can be answered, where they come so."""
    arrivals_ns = read_arrivals(root / DAY)
    live = arrivals_ns[len(arrivals_ns) // 2 :]
    live = live[: np.searchsorted(live, live[0] + speed * 500_000_000)][:400]
    due_s = (live - live[0]) / speed / 1e9
    rows = bar_windows(root, 4).reshape(-1, 3)[: len(due_s)]
    start_s = time.monotonic()

    def as_they_come() -> Iterator[np.ndarray]:
        for row, due in zip(rows, due_s, strict=True):
            time.sleep(max(0.0, start_s + due - time.monotonic()))
            yield row

    with Client(server.address, timeout_s=TIMEOUT_S) as client, client.open_feed(name, "ESH4") as feed:
        came = feed.tick_many(as_they_come())
        assert feed.next_sequence == len(rows) + 1
        feed.reset()
        again = feed.tick_many(rows)
    for one, other in zip(came, again, strict=True):
        assert type(one) is type(other)
        if isinstance(one, Prediction) and isinstance(other, Prediction):
            assert one["next_log_return"].tobytes() == other["next_log_return"].tobytes()
