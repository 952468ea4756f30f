"""Whether somebody's program speaks the protocol: every vector put to it, and what it got wrong."""

import os
import select
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tickpath.console.endings import Misconfigured, ending
from tickpath.console.errors import ConsoleError
from tickpath.console.output import print_rich
from tickpath.console.vector_questions import UNSUPPORTED, Question, read_questions

# An answer is a look at a few bytes; an interpreter may take a second or two to start.
ANSWER_S_MAX: Final = 10.0
# As many as a screen shows; the first tell the most.
FAILURES_SHOWN: Final = 20
CELL_CHARS_MAX: Final = 160


class Outcome(msgspec.Struct, frozen=True):
    """What came of one question. `problem` None: the answer is right."""

    question: Question
    supported: bool
    problem: str | None


class Program:
    """A child that answers each line with one line. Raises ConsoleError where it does not."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._to, self._from = process.stdin, process.stdout.fileno()
        self._read = b""

    def ask(self, line: str) -> str:
        """The answer to one line."""
        try:
            self._to.write(line.encode() + b"\n")
            self._to.flush()
        except BrokenPipeError:
            raise self._ended() from None
        deadline_s = time.monotonic() + ANSWER_S_MAX
        while b"\n" not in self._read:
            if not select.select([self._from], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                raise ConsoleError(f"the program gave no answer within {ANSWER_S_MAX:g} s to: {_shortened(line)}")
            came = os.read(self._from, 1 << 16)
            if not came:
                raise self._ended()
            self._read += came
        answer, _, self._read = self._read.partition(b"\n")
        return answer.decode(errors="replace").strip()

    def _ended(self) -> ConsoleError:
        return ConsoleError(
            f"the program ended with {self._process.wait()} before it was told to: it reads lines until its input ends"
        )


def ask_all(command: str, folder: Path | None) -> list[Outcome]:
    """What a program answers to every question of the vectors in `folder` (None: this version's own). Raises
    ConsoleError, and Misconfigured where there is nothing to ask, or nobody."""
    with ending(Misconfigured, ConsoleError):
        questions = read_questions(folder or default_folder())
    with _running(command) as program:
        return [_asked(program, question) for question in questions]


def passed(outcomes: Sequence[Outcome]) -> bool:
    """Whether all that the program supports is right, and that is something."""
    return all(outcome.problem is None for outcome in outcomes) and any(outcome.supported for outcome in outcomes)


def default_folder() -> Path:
    """Where this version's vectors are: in the wheel beside this package, in a checkout among the clients."""
    here = Path(__file__).resolve()
    packaged = here.parents[1] / "vectors"
    return packaged if packaged.is_dir() else here.parents[3] / "clients" / "vectors"


@contextmanager
def _running(command: str) -> Iterator[Program]:
    try:
        process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except (OSError, ValueError, IndexError) as error:
        raise Misconfigured(f"{command!r} can't be run: {error}") from None
    try:
        yield Program(process)
    finally:
        process.kill()
        process.communicate()


def _asked(program: Program, question: Question) -> Outcome:
    answer = program.ask(question.line)
    if answer == UNSUPPORTED:
        return Outcome(question, False, None)
    return Outcome(question, True, question.problem(answer))


def plain(outcome: Outcome) -> dict[str, str | bool | None]:
    """For programs."""
    return {
        "group": outcome.question.group,
        "name": outcome.question.name,
        "supported": outcome.supported,
        "problem": outcome.problem,
    }


def show(outcomes: Sequence[Outcome]) -> None:
    """Tables: what is wrong, and the sums."""
    from rich import box
    from rich.table import Table

    failed = [outcome for outcome in outcomes if outcome.problem is not None]
    if failed:
        wrong = Table("group", "vector", "problem", box=box.SIMPLE_HEAD)
        for outcome in failed[:FAILURES_SHOWN]:
            wrong.add_row(outcome.question.group, outcome.question.name, _shortened(outcome.problem or ""))
        print_rich(wrong)
        if len(failed) > FAILURES_SHOWN:
            print_rich(f"and {len(failed) - FAILURES_SHOWN} more; --json shows all")
    summary = Table("group", "right", "wrong", "unsupported", box=box.SIMPLE_HEAD)
    for group, counts in _counted(outcomes).items():
        summary.add_row(group, *(str(counts[kind]) for kind in ("right", "wrong", UNSUPPORTED)))
    print_rich(summary)


def _counted(outcomes: Iterable[Outcome]) -> dict[str, Counter[str]]:
    groups: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        kind = UNSUPPORTED if not outcome.supported else "right" if outcome.problem is None else "wrong"
        groups.setdefault(outcome.question.group, Counter())[kind] += 1
    return groups


def _shortened(text: str) -> str:
    return text if len(text) <= CELL_CHARS_MAX else text[:CELL_CHARS_MAX] + "…"
