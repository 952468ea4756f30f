"""Flags of the command line: which loads they mean, and which mean nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from tickpath.client import Tls
from tickpath.loadtest.errors import LoadTestError, UsageError
from tickpath.loadtest.flags import REQUESTS_MIN, LoopFlags, TargetFlags, check_used, parse_range
from tickpath.loadtest.runner import ClosedLoop
from tickpath.loadtest.schedule import Bursts, Constant, Poisson, Ramp
from tickpath.loadtest.target import UNBOUNDED

TARGET = TargetFlags("127.0.0.1:7070")


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("1000", [1000]),
        ("0.5", [0.5]),
        ("1:4", [1, 2, 3, 4]),
        ("100:500:200", [100, 300, 500]),
        ("100:450:200", [100, 300]),
        ("0.1:0.3:0.1", pytest.approx([0.1, 0.2, 0.3])),
    ],
)
def test_ranges(text: str, steps: object) -> None:
    assert parse_range(text) == steps


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-1", "5:1", "1:5:0", "1:5:-1", "1:2:3:4", "nan", "inf", "1:inf", "1::2", "1:9999"]
)
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(UsageError, match="--rate"):
        parse_range(text)


@pytest.mark.parametrize(
    ("flags", "loops"),
    [
        (LoopFlags(rate="1000"), [Constant(1000, 10)]),
        (LoopFlags(rate="5:6", duration=3), [Constant(5, 3), Constant(6, 3)]),
        (LoopFlags(rate="50", distribution="poisson"), [Poisson(50, 10, 7)]),
        (LoopFlags(rate="50", ramp_to=90.0), [Ramp(50, 90, 10)]),
        (LoopFlags(rate="500", burst="10:90"), [Bursts(500, 0.01, 0.09, 10)]),
        (LoopFlags(concurrency="1:3"), [ClosedLoop(1, 10), ClosedLoop(2, 10), ClosedLoop(3, 10)]),
    ],
)
def test_loops(flags: LoopFlags, loops: list[object]) -> None:
    assert flags.loops(seed=7) == loops


def test_a_replay_takes_its_whole_file_unless_told(tmp_path: Path) -> None:
    file = tmp_path / "arrivals"
    file.write_text("0\n1000\n5000000000\n")
    flags = LoopFlags(replay=file, speed=2.0)
    assert flags.loops(1)[0].describe() == "replay of arrivals at 2x"
    (whole,) = flags.loops(1)
    (part,) = replace(flags, duration=1.0).loops(1)
    assert not isinstance(whole, ClosedLoop)
    assert not isinstance(part, ClosedLoop)
    assert whole.offsets_ns().tolist() == [0, 500, 2_500_000_000]
    assert part.offsets_ns().tolist() == [0, 500]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (LoopFlags(), "--rate R, --concurrency N or --replay FILE"),
        (LoopFlags(rate="1", concurrency="1"), "in one way: .*; --rate and --concurrency came"),
        (LoopFlags(rate="0"), "--rate takes a number above zero"),
        (LoopFlags(concurrency="0"), "--concurrency takes a number above zero"),
        (LoopFlags(rate="1e9"), "20,000,000 requests at most"),
        (LoopFlags(rate="1e-9"), "constant 1e-09/s is 1 request in 10 s, too few for any figure"),
        (LoopFlags(rate="0.001", distribution="poisson"), "has no arrival in 10 s"),
        (LoopFlags(rate="1", ramp_to=0.5, duration=5), "is 4 requests in 5 s"),
        (LoopFlags(rate="1", speed=2.0), "--speed has no meaning with --rate"),
        (LoopFlags(rate="1", pause_max=2.0), "--pause-max has no meaning with --rate"),
        (LoopFlags(concurrency="1", distribution="poisson"), "--distribution has no meaning with --concurrency"),
        (LoopFlags(rate="1", burst="1:1", ramp_to=2.0), "one shape"),
        (LoopFlags(rate="1", burst="1"), "ON:OFF in milliseconds"),
        (LoopFlags(concurrency="1.5"), "whole numbers"),
    ],
)
def test_what_means_nothing_is_refused(flags: LoopFlags, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        flags.loops(1)


def test_the_fewest_requests_of_a_rate() -> None:
    flags = LoopFlags(rate="1", duration=REQUESTS_MIN)
    assert len(flags.loops(1)) == 1
    with pytest.raises(UsageError, match=f"is {REQUESTS_MIN - 1} requests in"):
        replace(flags, duration=REQUESTS_MIN - 1).loops(1)


def test_a_file_that_is_wrong_is_no_wrong_flag(tmp_path: Path) -> None:
    with pytest.raises(LoadTestError) as raised:
        LoopFlags(replay=tmp_path / "nowhere").loops(1)
    assert not isinstance(raised.value, UsageError)


def test_a_closed_loop_has_a_connection_for_each_in_flight() -> None:
    assert TARGET.load(ClosedLoop(4, 1)).connections == 4
    assert replace(TARGET, connections=2).load(ClosedLoop(4, 1)).connections == 2
    assert TARGET.load(Constant(1, 1)).connections == 1
    assert TARGET.load(Constant(1, 1)).in_flight_max == UNBOUNDED
    with pytest.raises(LoadTestError, match="5 connections are more than the 4 in flight"):
        replace(TARGET, connections=5).load(ClosedLoop(4, 1))


@pytest.mark.parametrize(
    ("text", "kind", "address"),
    [
        ("10.0.0.1:99", "tickpath", "10.0.0.1:99"),
        ("[::1]:99", "tickpath", "[::1]:99"),
        ("echo@localhost:7000", "echo", "localhost:7000"),
        ("my.targets:Mine@unix:/run/mine", "my.targets:Mine", "unix:/run/mine"),
    ],
)
def test_targets_of_a_comparison(text: str, kind: str, address: str) -> None:
    flags = TARGET.at(text)
    assert (flags.target, flags.address) == (kind, address)


def test_files_for_tls_go_where_it_is_spoken() -> None:
    given = replace(TARGET, tls_ca="ca.pem")
    encrypted, plain = given.at("tls://a:1"), given.at("unix:/run/s")
    assert (encrypted.options.tls, plain.options.tls) == (Tls(ca="ca.pem"), None)
    check_used(encrypted, plain)
    with pytest.raises(UsageError, match="--tls-ca is for tls://HOST:PORT, unix:/run/s came"):
        check_used(plain)


ECHO = replace(TARGET, target="echo")


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        ([replace(TARGET, request_bytes=100)], "--request-bytes means nothing to --target tickpath"),
        ([replace(ECHO, model="mlp")], "--model means nothing to --target echo"),
        ([replace(ECHO, inputs=Path("x.npz"))] * 2, "--inputs means nothing to --target echo"),
    ],
)
def test_what_no_target_reads_is_refused(sides: list[TargetFlags], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_used(*sides)


def test_what_one_of_two_targets_reads_is_taken() -> None:
    check_used(replace(TARGET, request_bytes=100, model="mlp"), replace(ECHO, request_bytes=100, model="mlp"))
    check_used(replace(TARGET, target="my:Own", request_bytes=100, model="m", inputs=Path("x.npz")))
    check_used(TARGET, ECHO)


def test_a_kind_of_target_that_is_none() -> None:
    with pytest.raises(UsageError, match="tickpath, echo or module:Class, 'x' came"):
        replace(TARGET, target="x")


@pytest.mark.parametrize(
    "text", ["", "localhost", "echo@", "localhost:", ":7", "a:b", "a:0", "a:65536", "a:" + "7" * 5000, "a:²"]
)
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(LoadTestError, match="expected host:port"):
        TARGET.at(text)
