"""A referee: MLPerf's LoadGen drives the same targets, with its own schedules, clock and verdict.

It checks that our figures are not our own invention. LoadGen runs in a process of its own (tickpath.loadtest.loadgen):
it can't be stopped before its schedule is over, and an exception that meets it within, such as that of Ctrl-C, takes
its process with it. A process can be ended.
"""

import signal
import subprocess
import sys
from typing import Final, Literal

import msgspec

from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.plan import Failed
from tickpath.loadtest.target import Options

Scenario = Literal["SingleStream", "Server"]
SCENARIOS: Final[tuple[Scenario, ...]] = ("SingleStream", "Server")
ROWS: Final = 2 * len(SCENARIOS)
"""Each scenario, beside it with nothing behind it."""

# LoadGen makes all queries of a row beforehand, and about 600 bytes for each.
QUERIES_MAX: Final = 1_000_000
# An answer that takes longer is given up.
ANSWER_S: Final = 10.0
# Beyond what a row takes: to start, to make the queries, and to wait for the last answer.
PATIENCE_S: Final = 60.0


class Case(msgspec.Struct, frozen=True):
    """One row to be ruled on. `null`: nothing is behind it, whatever the target."""

    scenario: Scenario
    null: bool
    target: str
    options: Options
    slo: str
    rate_hz: float
    seconds: float

    def __post_init__(self) -> None:
        if self.rate_hz * self.seconds > QUERIES_MAX:
            raise LoadTestError(
                f"LoadGen takes {QUERIES_MAX:,} requests a row, {self.rate_hz * self.seconds:,.0f} came: "
                "a lower --rate or a shorter --duration"
            )


class Ruling(msgspec.Struct, frozen=True, tag="ruling"):
    """What LoadGen says. `failed`: requests without a prediction, which LoadGen can't tell from others. `problems`: why
    it is INVALID, a line each; empty where it is VALID."""

    subject: str
    scenario: Scenario
    count: int
    p50_ns: int
    p99_ns: int
    p999_ns: int
    failed: int
    problems: tuple[str, ...]

    @property
    def valid(self) -> bool:
        return not self.problems


def rule(case: Case) -> Ruling:
    """Let LoadGen measure it. Raises LoadTestError. KeyboardInterrupt ends LoadGen too."""
    command = [sys.executable, "-m", "tickpath.loadtest.loadgen", msgspec.json.encode(case).decode()]
    # A process group of its own: Ctrl-C is for us.
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    ) as process:
        try:
            out, complaints = process.communicate(timeout=case.seconds + PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise LoadTestError(f"LoadGen did not end within {case.seconds + PATIENCE_S:.0f} s") from None
        finally:
            process.kill()
    if process.returncode:
        raise LoadTestError(f"LoadGen ended with {_code(process.returncode)}: {_last_line(complaints)}")
    said = msgspec.json.decode(_last_line(out), type=Ruling | Failed)
    if isinstance(said, Failed):
        raise LoadTestError(said.reason)
    return said


def _code(returncode: int) -> str:
    return signal.Signals(-returncode).name if returncode < 0 else f"code {returncode}"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
