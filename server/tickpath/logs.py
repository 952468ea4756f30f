"""What happens in a process of ours, told on stderr: a line for people, or a JSON object a line for programs.

Whoever logs waits for nobody: a thread writes, behind a queue that is bounded, since a pipe that nobody reads would
hold up the loop with its next line. And a place in the code that says the same again and again is cut short, so that no
client can fill a disk. What was left out is counted and told.

Requests are not logged, whatever becomes of them: /metrics counts them.
"""

import json
import logging
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic_ns
from typing import Final, Literal

LogFormat = Literal["human", "json"]

# Ten lines tell a person all that a thousand do; a place that says more in ten seconds says the same.
BURST_LINES: Final = 10
BURST_NS: Final = 10_000_000_000
# All places together say 250 lines in a burst; four of those may wait for a slow reader.
LINES_WAITING_MAX: Final = 1000
# What a traceback needs; a longer text has something of a stranger's in it.
LINE_CHARS_MAX: Final = 16 * 1024
# The last lines of a process that ends, to a reader that reads.
CLOSE_S_MAX: Final = 1.0

STDERR: Final = 2

Place = tuple[str, int]
"""A line of our code that logs: its file and number."""


@dataclass
class _Burst:
    began_ns: int
    lines: int = 0
    left_out: int = 0
    said: str = ""


class FloodGate:
    """Which lines are told. Pure; one for each place, of which there are as many as the code has."""

    def __init__(self) -> None:
        self._bursts: dict[Place, _Burst] = {}

    def admit(self, place: Place, said: str, now_ns: int) -> bool:
        """Whether to tell what `place` says now."""
        burst = self._bursts.setdefault(place, _Burst(now_ns))
        burst.said = said
        if burst.lines < BURST_LINES:
            burst.lines += 1
            return True
        burst.left_out += 1
        return False

    def over(self, now_ns: int) -> Iterator[tuple[str, int]]:
        """What was left out of bursts that are over: the last of it, and how many lines. Each is told once."""
        for place, burst in tuple(self._bursts.items()):
            if now_ns - burst.began_ns >= BURST_NS:
                del self._bursts[place]
                if burst.left_out:
                    yield burst.said, burst.left_out


class JsonFormatter(logging.Formatter):
    """One object a line: time (UTC), level, logger, pid, message, and exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage()[:LINE_CHARS_MAX],
        }
        if record.exc_info:
            # The end of a traceback says what happened.
            told["exception"] = self.formatException(record.exc_info)[-LINE_CHARS_MAX:]
        return json.dumps(told)  # in ASCII, so that no text of a stranger's is too strange


CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""For str.translate: what a terminal would obey is shown instead."""


class HumanFormatter(logging.Formatter):
    """Time, level and message. A message keeps to one line and to its terminal, whatever a stranger put into it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        record.message = record.message[:LINE_CHARS_MAX].translate(CONTROLS)
        return super().formatMessage(record)


FORMATTERS: Final[dict[LogFormat, type[logging.Formatter]]] = {"human": HumanFormatter, "json": JsonFormatter}


class LineWriter:
    """A thread that writes lines to a descriptor; `put` never waits."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: queue.Queue[str | None] = queue.Queue(LINES_WAITING_MAX)
        self.lost = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.lost += 1

    def close(self) -> None:
        """Write what waits, for as long as somebody reads; no line comes after this."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return  # nobody has read for a thousand lines
        self._thread.join(CLOSE_S_MAX)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            left = memoryview(f"{line}\n".encode(errors="backslashreplace"))
            try:
                while left:
                    left = left[os.write(self._fd, left) :]
            except OSError:  # the reader has gone, or the disk is full; a later line may do
                self.lost += 1


class StderrHandler(logging.Handler):
    """Puts what a flood gate lets through before a line writer. `logging` calls `emit` under this handler's lock."""

    def __init__(self, formatter: logging.Formatter, lines: LineWriter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._lines = lines
        self._gate = FloodGate()
        self._lost_told = 0

    def emit(self, record: logging.LogRecord) -> None:
        now_ns = monotonic_ns()
        self.tell_left_out(now_ns)
        try:
            if self._gate.admit((record.pathname, record.lineno), record.getMessage(), now_ns):
                self._lines.put(self.format(record))
        except Exception:  # as every handler: a line that can't be formatted ends nothing but itself
            self.handleError(record)

    def tell_left_out(self, now_ns: int) -> None:
        """Say how much was not said, and what."""
        for said, count in self._gate.over(now_ns):
            self._say("left out %d more lines like this: %s", count, said)
        if lost := self._lines.lost - self._lost_told:
            self._lost_told += lost
            self._say("lost %d lines: whoever reads this was too slow, or could not take them", lost)

    def _say(self, text: str, *values: object) -> None:
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, values, None)
        self._lines.put(self.format(record))


@contextmanager
def logging_to_stderr(form: LogFormat) -> Iterator[None]:
    """Tell what is logged, from level INFO on, while the block runs."""
    lines = LineWriter(STDERR)
    handler = StderrHandler(FORMATTERS[form](), lines)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.tell_left_out(monotonic_ns() + BURST_NS)
        lines.close()
