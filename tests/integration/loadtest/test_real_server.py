"""The sender against a real `tickpath serve`: a freeze, a replay of a real market, and what arithmetic says of both."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.inputs import inputs_root
from tests.serving import RunningServer, serve, write_zoo

from tickpath.loadtest.arrivals import read_arrivals
from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.inputs import DISTINCT_MAX
from tickpath.loadtest.latency import summarise
from tickpath.loadtest.rows import Rows
from tickpath.loadtest.run import OK
from tickpath.loadtest.runner import Load, measure
from tickpath.loadtest.schedule import Constant, Replay
from tickpath.loadtest.target import Options
from tickpath.wire import Code

FREEZE_S = 2.0
SNAPSHOT = 8_725  # records of the reference replay at one instant, before the live ones
L3 = "market_data/nautilus/databento__esh4-glbx-mdp3-20231225.mbo.dbn.zst"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    with serve(folder, write_zoo(folder, "mlp", "lstm_a"), in_flight_max=128) as running:
        yield running


def wait_until_stopped(pid: int) -> None:
    """A signal takes its time to get through."""
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        pass


def test_a_server_that_stops_for_two_seconds_shows_it(server: RunningServer) -> None:
    """500/s for 10 s, stopped for 2 s within: those who come meanwhile wait until it goes on, at the least. What the
    others meet is this machine's doing, and p50 and p75 are theirs: so each percentile lies between that of the waits
    that are certain and that of those outside of the freeze, with all within it taken to have waited for ever."""
    stopped, marks_ns = threading.Event(), list[int]()

    def go_on() -> None:
        marks_ns.append(time.monotonic_ns())
        os.kill(server.ready.pid, signal.SIGCONT)

    def freeze(rows: Rows) -> None:
        if len(rows) > 1000 and not stopped.is_set():
            stopped.set()
            os.kill(server.ready.pid, signal.SIGSTOP)
            wait_until_stopped(server.ready.pid)
            marks_ns.append(time.monotonic_ns())
            threading.Timer(FREEZE_S, go_on).start()

    # 40 connections of 128 requests each hold more than all: none is skipped, however long it takes.
    run = measure(Load(Options(server.address, "mlp"), Constant(500, 10), connections=40, told=freeze))
    assert (run.ending, len(run.answered)) == ("complete", 5000)
    stop_ns, go_ns = marks_ns
    latency_ns, intended_ns = run.latency_ns(), run.rows["intended_ns"]
    frozen = (stop_ns <= intended_ns) & (intended_ns < go_ns)
    least_ns = np.where(frozen, go_ns - intended_ns, 0)
    most_ns = np.where(frozen, np.iinfo(np.int64).max, latency_ns)
    assert (least_ns <= latency_ns).all()
    summary = summarise(latency_ns)
    for quantile, found_ns in ((0.5, summary.p50_ns), (0.75, None), (0.9, summary.p90_ns), (0.99, summary.p99_ns)):
        least, found, most = (
            np.quantile(each_ns, quantile, method="inverted_cdf") for each_ns in (least_ns, latency_ns, most_ns)
        )
        assert least <= found <= most
        assert found_ns in (None, found)
    # A request each 2 ms, of which 50 are slower than p99: it is 0.1 s below the whole freeze, and two gaps.
    assert summary.p99_ns >= (FREEZE_S - 0.104) * 1e9
    assert (np.quantile(most_ns, 0.5, method="inverted_cdf")) < np.iinfo(np.int64).max


def test_stages_of_a_real_server_add_up(server: RunningServer) -> None:
    run = measure(Load(Options(server.address, "lstm_a"), Constant(200, 0.5)))
    stages_ns = run.stages_ns()
    assert np.array_equal(sum(stages_ns.values()), run.uncorrected_ns())
    assert all((spans_ns >= 0).all() for spans_ns in stages_ns.values())
    assert (run.target.partition(" ")[0], run.model) == ("tickpath", "lstm_a")


def test_over_a_unix_socket(server: RunningServer) -> None:
    run = measure(Load(Options(server.uds, "mlp"), Constant(500, 0.2), connections=2))
    assert len(run.answered) == 100


def test_which_of_two_models_must_be_said(server: RunningServer) -> None:
    with pytest.raises(LoadTestError, match=r"name the model with --model: .* serves 'mlp', 'lstm_a'"):
        measure(Load(Options(server.address), Constant(100, 0.1)))


def test_real_inputs_are_sent_in_turn(server: RunningServer, tmp_path: Path) -> None:
    """One of the two holds a NaN, which the server refuses: so every second request is."""
    x = np.ones((2, 1, 64), np.float32)
    x[1, 0, 5] = np.nan
    np.savez(tmp_path / "x.npz", x=x)
    run = measure(Load(Options(server.address, "mlp", str(tmp_path / "x.npz")), Constant(500, 0.2)))
    assert run.rows["code"].tolist() == [OK, Code.BAD_VALUE] * 50


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"y": np.zeros((1, 64), np.float32)}, "expected arrays named x, got y"),
        ({"x": np.zeros((1, 63), np.float32)}, r"expected float32\[N,64\], got float32\[1,63\]"),
        ({"x": np.zeros((1, 64))}, "expected float32, got float64"),
        ({"x": np.zeros(64, np.float32)}, r"one request of 2 dimensions or a stack of them, got the shape \(64,\)"),
        ({"x": np.zeros((0, 1, 64), np.float32)}, "at least one; got x: 0"),
    ],
)
def test_inputs_that_do_not_fit(
    server: RunningServer, tmp_path: Path, arrays: dict[str, npt.NDArray[np.generic]], said: str
) -> None:
    with (tmp_path / "x.npz").open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    with pytest.raises(LoadTestError, match=said):
        measure(Load(Options(server.address, "mlp", str(tmp_path / "x.npz")), Constant(100, 0.1)))


def test_a_real_market_replayed(server: RunningServer) -> None:
    """Two hours of the E-mini future's order book, a thousand times as fast: ties stay ties, gaps stay gaps, and how
    late each request was is stated."""
    root = inputs_root()
    if root is None:
        pytest.skip("needs the folder of real inputs (TICKPATH_INPUTS)")
    arrivals_ns = read_arrivals(root / L3)
    replay = Replay(arrivals_ns, "L3", speed=1000, skip=SNAPSHOT, pause_s_max=60, seconds=2)
    offsets_ns = replay.offsets_ns()
    run = measure(Load(Options(server.address, "mlp"), replay, connections=8))
    assert len(run.rows) == len(offsets_ns) > DISTINCT_MAX
    intended_ns = run.rows["intended_ns"] - run.rows["intended_ns"][0]
    assert np.array_equal(intended_ns, offsets_ns)
    assert (np.diff(intended_ns) == 0).any()
    sent = run.rows["sent_ns"] > 0
    gaps_ns = np.diff(run.rows["sent_ns"][sent])
    meant_ns = np.diff(run.rows["intended_ns"][sent])
    lateness_ns = run.lateness_ns()
    assert (np.abs(gaps_ns - meant_ns) <= np.maximum(lateness_ns[1:], lateness_ns[:-1])).all()
    assert (gaps_ns >= 0).all()
