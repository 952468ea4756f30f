"""Runs that were asked for together: those that were made, and those that were not."""

from dataclasses import dataclass

from tickpath.loadtest.run import Run


@dataclass(frozen=True, slots=True)
class NotRun:
    """What was asked for and not run, by schedule, and why."""

    schedules: tuple[str, ...]
    reason: str

    def describe(self) -> str:
        """One line."""
        return f"NOT RUN: {', '.join(self.schedules)}; {self.reason}"


@dataclass(frozen=True, slots=True)
class Series:
    """`not_run` is None where all were."""

    runs: tuple[Run, ...]
    not_run: NotRun | None


def ended_early(run: Run) -> str:
    """Why; empty where it went to its end."""
    told = {
        "complete": "",
        "interrupted": "interrupted",
        "server lost": "the server was lost",
        "sender lost": "the sender was lost",
    }[run.ending]
    return f"{told}: {run.reason}" if told and run.reason else told
