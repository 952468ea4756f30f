"""`tickpath replay`: what was recorded of a real server, asked again of the same version and of others."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.peer import Peer
from tests.recordings import TICKS, replay, tick, traffic, write_models
from tests.serving import RunningServer, serve

from tickpath.wire import Infer

COUNT = 100


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A recording of several sessions and feeds, and how many requests it holds."""
    folder = tmp_path_factory.mktemp("recorded")
    with serve(folder, write_models(folder), record={"dir": "recording"}) as server:
        total = traffic(server.address, COUNT)
    return folder / "recording", total


@pytest.fixture(scope="module")
def same(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("same")
    with serve(folder, write_models(folder)) as server:
        yield server


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of another `scale`; its `window` is the same."""
    folder = tmp_path_factory.mktemp("other")
    with serve(folder, write_models(folder, factor=2.0000002)) as server:
        yield server


@pytest.mark.parametrize("speed", ["1", "10", "max"])
def test_the_same_version_answers_the_same(recorded: tuple[Path, int], same: RunningServer, speed: str) -> None:
    folder, total = recorded
    report = replay(str(folder), "--at", same.address, "--speed", speed)
    assert (report["ending"], report["played"], report["compared"]) == ("complete", total, total)
    assert (report["same"], report["differ"], report["codes"]) == (total, 0, [])
    assert (report["left_out"], report["unanswered"], report["not_recorded"]) == ({}, 0, 0)
    pairs = {pair["model"]: pair for pair in report["versions"]}
    assert set(pairs) == {"scale", "window"}
    assert all(pair["recorded_sha256"] == pair["replayed_sha256"] != "" for pair in pairs.values())
    assert report["recorded"]["count"] == report["replayed"]["count"] == sum(pair["count"] for pair in pairs.values())
    assert report["lateness"]["count"] == total


@pytest.mark.parametrize("speed", ["1", "max"])
def test_a_feed_that_went_from_connection_to_connection(tmp_path: Path, speed: str) -> None:
    """What the last one had asked of it comes first, though it leaves on another connection."""
    models, again = write_models(tmp_path, executor="thread"), tmp_path / "again"
    with serve(tmp_path, models, record={"dir": "recording"}) as server:
        for _ in range(10):
            asyncio.run(tick(server.address, "desk", "ES"))
    again.mkdir()
    with serve(again, models) as server:
        report = replay(str(tmp_path / "recording"), "--at", server.address, "--speed", speed)
    assert (report["codes"], report["same"], report["differ"]) == ([], 10 * (TICKS + 1), 0)


def test_another_version_differs_and_is_told_by_how_much(recorded: tuple[Path, int], other: RunningServer) -> None:
    folder, total = recorded
    report = replay(str(folder), "--at", other.address, "--speed", "max", exit_code=7)
    zeros = 3  # nothing times anything is nothing
    assert report["differ"] == 3 * COUNT - zeros
    assert report["same"] == total - report["differ"]
    assert report["ulp_max"] in (1, 2)
    assert report["decided_otherwise"] == 0
    first = report["differences"][0]
    assert (first["model"], first["output"]) == ("scale", "y")
    assert 0 < first["ulp_max"] <= 2
    assert 0 < first["abs_max"] < 1e-3
    assert first["client"].startswith("desk-")
    assert len(report["differences"]) == 10
    pairs = {pair["model"]: pair for pair in report["versions"]}
    assert pairs["scale"]["recorded_sha256"] != pairs["scale"]["replayed_sha256"]
    assert pairs["window"]["recorded_sha256"] == pairs["window"]["replayed_sha256"]


def test_one_model_alone_and_in_another_name(recorded: tuple[Path, int], tmp_path: Path) -> None:
    folder, _ = recorded
    models: list[dict[str, Any]] = [write_models(tmp_path)[0] | {"name": "double", "version": "7"}]
    with serve(tmp_path, models) as server:
        report = replay(str(folder), "--at", server.address, "--model", "scale=double@7", "--speed", "max")
        assert (report["same"], report["played"]) == (3 * COUNT, 3 * COUNT)
        assert set(report["left_out"]) == {"of models that were not asked for"}
        replayed = [(pair["recorded"], pair["replayed"]) for pair in report["versions"]]
        assert replayed == [("1", "7")]
        report = replay(str(folder), "--at", server.address, "--speed", "max")
        assert report["left_out"]["of models that this server does not serve"] == 3 * COUNT + 2


def test_what_was_refused_then_and_is_answered_now_is_told(tmp_path: Path) -> None:
    bad = memoryview(bytes([0, 0, 0xC0, 0x7F] * 3))
    models = write_models(tmp_path)
    with serve(tmp_path, models, record={"dir": "recording"}) as server, server.connect() as connection:
        peer = Peer(connection)
        peer.greet()
        peer.send(Infer(1, 0, 1, [bad]))
        peer.receive()
    with serve(tmp_path, [models[0] | {"non_finite": "pass"}, models[1]]) as server:
        report = replay(str(tmp_path / "recording"), "--at", server.address, exit_code=7)
    assert report["codes"] == [{"model": "scale", "recorded": "BAD_VALUE", "replayed": "OK", "count": 1}]
    assert report["decided_otherwise"] == 1


def test_a_time_of_it(recorded: tuple[Path, int], same: RunningServer) -> None:
    folder, _ = recorded
    listing = replay(str(folder), "--list")
    assert listing["requests"] == {"scale": 3 * COUNT, "window": 42}
    (segment,) = listing["segments"]
    assert (segment["state"], segment["torn"], listing["sessions"]) == ("closed", "", 5)
    done = _run(str(folder), "--at", same.address, "--until", "2020-01-01")
    assert done.returncode == 1
    assert "nothing to play" in done.stderr
    report = replay(str(folder), "--at", same.address, "--from", "2020-01-01", "--speed", "max")
    assert report["same"] == report["played"]


def test_a_torn_tail_is_told_and_the_rest_is_played(
    recorded: tuple[Path, int], same: RunningServer, tmp_path: Path
) -> None:
    folder, total = recorded
    (segment,) = folder.glob("*.segment")
    torn = tmp_path / segment.with_suffix(".open").name
    torn.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2 + 3])
    report = replay(str(torn), "--at", same.address, "--speed", "max")
    assert 0 < report["played"] < total
    assert report["differ"] == 0
    assert len(report["torn"]) == 1


def test_a_server_that_dies_ends_it(recorded: tuple[Path, int], tmp_path: Path) -> None:
    folder, _ = recorded
    with serve(tmp_path, write_models(tmp_path), exit_code=None) as server:
        os.kill(server.ready.pid, signal.SIGSTOP)
        command = [sys.executable, "-m", "tickpath.cli", "replay", str(folder), "--at", server.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as replaying:
            os.kill(server.ready.pid, signal.SIGKILL)
            _, errors = replaying.communicate(timeout=60)
    assert replaying.returncode == 1
    assert errors.startswith("tickpath: ")


def test_options_that_make_no_sense_are_told(recorded: tuple[Path, int], tmp_path: Path) -> None:
    folder, _ = recorded
    for wrong in (["--speed", "0"], ["--from", "noon"], ["--model", "a=@"]):
        done = _run(str(folder), "--at", "127.0.0.1:1", *wrong)
        assert done.returncode == 2, wrong
        assert "expected" in done.stderr
    done = _run(str(tmp_path), "--list")
    assert (done.returncode, "no segment is there" in done.stderr) == (1, True)


def test_for_people(recorded: tuple[Path, int], other: RunningServer) -> None:
    folder, _ = recorded
    done = _run(str(folder), "--at", other.address, "--speed", "max")
    assert done.returncode == 7
    assert "answers DIFFER, by up to" in done.stdout
    assert "the first 10 of" in done.stdout
    done = _run(str(folder))
    assert (done.returncode, "expected --at ADDRESS" in done.stderr) == (2, True)
    done = _run(str(folder), "--list")
    assert (done.returncode, done.stderr) == (0, "")
    assert "scale" in done.stdout


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tickpath.cli", "replay", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
