"""`tickpath vectors verify`: whether somebody's program speaks the protocol."""

import os
import select
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
import msgspec

from tickpath.console.endings import Failed, Misconfigured, ending
from tickpath.console.errors import ConsoleError
from tickpath.console.output import print_json, print_rich
from tickpath.console.vector_questions import UNSUPPORTED, Question, read_questions

# An answer is a look at a few bytes; an interpreter may take a second or two to start.
ANSWER_S_MAX: Final = 10.0
# As many as a screen shows; the first tell the most.
FAILURES_SHOWN: Final = 20
CELL_CHARS_MAX: Final = 160

EXAMPLES = """
Examples:

\b
tickpath vectors verify ./tickpath-vectors
tickpath vectors verify 'java -cp build Vectors' --json

Exit code: 0 all that the program supports is right, 1 something is wrong or nothing is supported, 2 it can't be run.
"""


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


@click.group()
def vectors() -> None:
    """Check a client in any language against the protocol's vectors."""


@vectors.command(epilog=EXAMPLES)
@click.argument("command", metavar="CMD")
@click.option("--from", "folder", metavar="FOLDER", type=Path, help="The vectors.  [default: this version's own]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a question.")
def verify(command: str, folder: Path | None, as_json: bool) -> int:
    """Ask CMD to decode and encode every vector, and show what it got wrong.

    CMD reads questions as lines and answers each with a line; clients/vectors/README.md has the few forms there are.
    What it does not do it answers with `unsupported`: a client need not read what clients send.
    """
    with ending(Misconfigured, ConsoleError):
        questions = read_questions(folder or default_folder())
    with _running(command) as program, ending(Failed, ConsoleError):
        outcomes = [_asked(program, question) for question in questions]
    if as_json:
        for outcome in outcomes:
            print_json(_plain(outcome))
    else:
        _print(outcomes)
    passed = all(outcome.problem is None for outcome in outcomes) and any(outcome.supported for outcome in outcomes)
    return 0 if passed else 1


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


def _plain(outcome: Outcome) -> dict[str, str | bool | None]:
    return {
        "group": outcome.question.group,
        "name": outcome.question.name,
        "supported": outcome.supported,
        "problem": outcome.problem,
    }


def _print(outcomes: list[Outcome]) -> None:
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
