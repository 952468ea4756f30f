"""Requests and their answers are found in segments however they lie there, and a plan is made of them."""

from pathlib import Path

import numpy as np
import pytest
from tests.segments import STAMPS, Put, body, exchanges_of, sealed

from tickpath.console.replaying import parse_model, parse_speed, parse_time
from tickpath.playback.dialogue import Wanted
from tickpath.playback.plan import NO_MODEL, NOT_CHOSEN, Choice, make_plan
from tickpath.recorder.entries import Kind
from tickpath.recorder.reading import Segment
from tickpath.recorder.segments import SegmentHeader, encode_header
from tickpath.wire import (
    Cancel,
    ClientMessage,
    Code,
    Failure,
    FeedOpened,
    Infer,
    OpenFeed,
    Result,
    ServerMessage,
    Tick,
)

DESCRIPTION = (
    b'{"models":[{"handle":0,"name":"a","version":"","inputs":[],"outputs":[]},'
    b'{"handle":1,"name":"b","version":"7","inputs":[],"outputs":[]}],'
    b'"versions":[{"name":"a","version":"1","sha256":"ab","engine":"e","precision":"p"}]}'
)


class Said:
    """A segment that is made up."""

    def __init__(self, folder: Path, number: int = 1, run: str = "run") -> None:
        self._path = folder / f"20251103T093000.000000Z-1-{number:06d}.open"
        self._run = run
        self._entries: list[Put] = [(Kind.DESCRIPTION, 0, 0, DESCRIPTION)]

    def asks(self, session: int, at_ns: int, message: ClientMessage) -> "Said":
        self._entries.append((Kind.REQUEST, session, at_ns, body(message)))
        return self

    def hears(self, session: int, at_ns: int, message: ServerMessage) -> "Said":
        self._entries.append((Kind.REPLY, session, at_ns, body(message)))
        return self

    def opens(self, session: int, name: str) -> "Said":
        self._entries.append((Kind.OPENED, session, 0, name.encode()))
        return self

    def closes(self, session: int, at_ns: int) -> "Said":
        self._entries.append((Kind.CLOSED, session, at_ns, b""))
        return self

    def segment(self) -> Segment:
        header = encode_header(SegmentHeader("tickpath 1", self._run, 1, 0, 1_000_000))
        self._path.write_bytes(header + bytes(sealed(self._entries).entries))
        return Segment(self._path)


def infer(request_id: int, handle: int = 0) -> Infer:
    return Infer(request_id, handle, 1, [])


def result(request_id: int) -> Result:
    return Result(request_id, "1", [], STAMPS)


def test_answers_find_their_requests_out_of_order_and_by_session(tmp_path: Path) -> None:
    said = Said(tmp_path).opens(1, "desk").opens(2, "other")
    said.asks(1, 1, infer(1)).asks(2, 2, infer(1)).asks(1, 3, infer(2))
    said.hears(1, 4, result(2)).hears(2, 5, Failure(1, Code.DEADLINE, "late")).hears(1, 6, result(1))
    exchanges = exchanges_of([said.segment()])
    first, second, third = exchanges
    assert all(each.reply_length for each in exchanges)
    assert first.reply_offset > second.reply_offset > third.reply_offset
    assert [exchanges.session(each).client for each in exchanges] == ["desk", "other", "desk"]
    assert [each.unix_ns for each in exchanges] == [1_000_001, 1_000_002, 1_000_003]


def test_an_id_may_come_again_and_a_double_one_is_refused_first(tmp_path: Path) -> None:
    said = Said(tmp_path)
    said.asks(1, 1, infer(1)).asks(1, 2, infer(1)).hears(1, 3, Failure(1, Code.BAD_VALUE, "in flight"))
    said.hears(1, 4, result(1)).asks(1, 5, infer(1)).hears(1, 6, result(1))
    first, double, again = exchanges_of([said.segment()])
    assert double.reply_offset < first.reply_offset < again.reply_offset


def test_an_answer_may_lie_in_the_next_segment(tmp_path: Path) -> None:
    asked, answered = Said(tmp_path, 1).asks(1, 1, infer(1)), Said(tmp_path, 2).hears(1, 2, result(1))
    (exchange,) = exchanges_of([asked.segment(), answered.segment()])
    assert (exchange.segment, exchange.reply_segment) == (0, 1)


def test_lives_of_a_core_are_told_apart(tmp_path: Path) -> None:
    asked = Said(tmp_path, 1, "one").asks(1, 1, infer(1))
    answered = Said(tmp_path, 2, "two").hears(1, 2, result(1))
    exchanges = exchanges_of([asked.segment(), answered.segment()])
    assert exchanges[0].reply_length == 0
    assert (exchanges.orphans, len(exchanges.sessions)) == (1, 2)


def test_a_tick_is_of_its_feeds_model(tmp_path: Path) -> None:
    said = Said(tmp_path).asks(1, 1, OpenFeed(1, 1, "ES"))
    said.hears(1, 2, FeedOpened(1, 5, 1, 2, 0, False, "7", (), ())).asks(1, 3, Tick(2, 5, 1, [])).asks(
        1, 4, Tick(3, 6, 1, [])
    )
    exchanges = exchanges_of([said.segment()])
    models = [exchanges.model(each) for each in exchanges]
    assert [model and model.name for model in models] == ["b", "b", None]


def test_a_plan_is_in_the_order_of_arrival_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    said = (
        Said(tmp_path).asks(1, 300, infer(1)).asks(2, 100, infer(1)).asks(2, 500, infer(2, 1)).asks(2, 510, Cancel(2))
    )
    said.asks(1, 700, infer(2, 9)).closes(1, 800)
    exchanges = exchanges_of([said.segment()])
    plan = make_plan(exchanges, Choice())
    assert plan.indices.tolist() == [1, 0, 2, 3, 5]
    assert plan.offsets_ns.tolist() == [0, 200, 400, 410, 700]
    assert (plan.sessions, dict(plan.left_out)) == ((1, 0), {NO_MODEL: 1})
    plan = make_plan(exchanges, Choice({"b": Wanted("b")}, speed=None))
    assert plan.indices.tolist() == [2, 3, 5]
    assert plan.left_out == {NOT_CHOSEN: 2, NO_MODEL: 1}
    assert np.all(plan.offsets_ns == 0)
    plan = make_plan(exchanges, Choice(from_ns=1_000_200, until_ns=1_000_505, speed=2.0))
    assert (plan.indices.tolist(), plan.offsets_ns.tolist()) == ([0, 2], [0, 100])


def test_what_is_typed() -> None:
    assert (parse_speed("10"), parse_speed("max")) == (10.0, None)
    assert parse_model("a") == ("a", Wanted("a"))
    assert parse_model("a=b") == ("a", Wanted("b"))
    assert parse_model("a@2") == ("a", Wanted("a", "2"))
    assert parse_model("a=@2") == ("a", Wanted("a", "2"))
    assert parse_model("a=b@2") == ("a", Wanted("b", "2"))
    assert parse_time("1970-01-01T00:00:01.5") == parse_time("1970-01-01T01:00:01.5+01:00") == 1_500_000_000
    for parse, text in ((parse_speed, "nan"), (parse_speed, "-1"), (parse_model, "a="), (parse_model, "a@")):
        with pytest.raises(ValueError, match="expected"):
            parse(text)
