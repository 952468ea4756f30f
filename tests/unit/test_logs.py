"""What is told on stderr: how much of it, in what form, and that nobody waits for a reader."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tickpath.logs import (
    BURST_LINES,
    BURST_NS,
    FORMATTERS,
    LINE_CHARS_MAX,
    LINES_WAITING_MAX,
    FloodGate,
    LineWriter,
    LogFormat,
    StderrHandler,
)

HERE = ("file.py", 7)


def test_a_place_that_says_too_much_is_cut_short_and_the_rest_counted() -> None:
    gate = FloodGate()
    told = [gate.admit(HERE, f"line {number}", number) for number in range(BURST_LINES + 5)]
    assert told == [True] * BURST_LINES + [False] * 5
    assert gate.admit(("file.py", 8), "another place", 0)
    assert list(gate.over(BURST_NS - 1)) == []
    assert list(gate.over(BURST_NS)) == [(f"line {BURST_LINES + 4}", 5)]
    assert list(gate.over(2 * BURST_NS)) == []
    assert gate.admit(HERE, "again", BURST_NS)


@contextmanager
def logged(form: LogFormat) -> Iterator[tuple[logging.Logger, list[str]]]:
    """A logger, and the lines that it wrote, once the block is over."""
    reader, writer = os.pipe()
    lines = LineWriter(writer)
    logger = logging.getLogger("tests.logs")
    handler = StderrHandler(FORMATTERS[form](), lines)
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    said: list[str] = []
    try:
        yield logger, said
    finally:
        logger.removeHandler(handler)
        lines.close()
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            said += pipe.read().splitlines()


def test_json_is_one_object_a_line_whatever_is_in_it() -> None:
    with logged("json") as (logger, lines):
        logger.info("a name of %s", 'a stranger\n{"level": "error"}\x1b[2J\udc80')
        try:
            raise ValueError("what came")
        except ValueError:
            logger.exception("a fault")
    first, second = map(json.loads, lines)
    assert first["message"].startswith("a name of a stranger\n{")
    assert (first["level"], first["logger"], first["pid"]) == ("info", "tests.logs", os.getpid())
    assert second["message"] == "a fault"
    assert second["exception"].endswith("ValueError: what came")


def test_a_line_for_people_stays_one_line() -> None:
    with logged("human") as (logger, lines):
        logger.warning("a name of %s, %d µs", "a stranger\r\n2026 ERROR \x1b[2J", 5)
        logger.warning("%s", "x" * 10 * LINE_CHARS_MAX)
    assert lines[0].endswith("WARNING a name of a stranger\\x0d\\x0a2026 ERROR \\x1b[2J, 5 µs")
    assert len(lines) == 2
    assert len(lines[1]) < LINE_CHARS_MAX + 100


def test_a_line_that_can_not_be_formatted_ends_nothing_but_itself(capsys: pytest.CaptureFixture[str]) -> None:
    handler = StderrHandler(FORMATTERS["human"](), LineWriter(os.open(os.devnull, os.O_WRONLY)))
    handler.handle(logging.LogRecord("tests", logging.INFO, __file__, 1, "%d", ("no number",), None))
    assert "no number" in capsys.readouterr().err


def test_nobody_waits_for_a_reader_and_what_was_lost_is_told() -> None:
    reader, writer = os.pipe()
    lines = LineWriter(writer)
    line = "x" * 1000
    count = 3 * LINES_WAITING_MAX
    for _ in range(count):
        lines.put(line)
    lost = lines.lost
    # The pipe takes 64 lines, one is being written, and the queue has the others.
    assert count - LINES_WAITING_MAX - 100 < lost <= count - LINES_WAITING_MAX
    with open(reader, "rb") as pipe:
        for _ in range(count - lost):
            assert pipe.readline() == line.encode() + b"\n"
        handler = StderrHandler(FORMATTERS["human"](), lines)
        handler.tell_left_out(0)
        assert f"lost {lost} lines".encode() in pipe.readline()
        handler.tell_left_out(0)  # once
        lines.close()
        os.close(writer)
        assert pipe.read() == b""


def test_a_reader_that_has_gone_is_counted() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    lines = LineWriter(writer)
    lines.put("to nobody")
    lines.close()
    os.close(writer)
    assert lines.lost == 1
