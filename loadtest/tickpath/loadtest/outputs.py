"""Where figures go: a table for people, and the files that were asked for.

That each can be written is looked at before anything is measured; should one fail all the same, the others are written.
"""

import errno
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from tickpath.loadtest.compare import Comparison
from tickpath.loadtest.errors import LoadTestError, UsageError
from tickpath.loadtest.goodput import Goodput
from tickpath.loadtest.report import comparison_files, files
from tickpath.loadtest.report.comparison import comparison_parts
from tickpath.loadtest.report.figures import Figures, figures
from tickpath.loadtest.report.terminal import report_parts
from tickpath.loadtest.run import Run
from tickpath.loadtest.series import NotRun

STDOUT: Final = Path("-")

Job = tuple[Path, Callable[[Path], object]]
"""A file, and what writes it."""

# What each needs beyond the server's own packages: the extra `report`.
PACKAGES: Final = {"html_path": "matplotlib", "png_path": "matplotlib", "hgrm_path": "hdrh"}


@dataclass(frozen=True, slots=True)
class Outputs:
    """Files that were asked for. `-` is stdout, for JSON and CSV; the table then goes to stderr."""

    json_path: Path | None = None
    csv_path: Path | None = None
    html_path: Path | None = None
    png_path: Path | None = None
    hgrm_path: Path | None = None
    samples_path: Path | None = None

    def check(self) -> None:
        """Before anything is measured: whether it could be written. Raises UsageError."""
        taken: dict[str, str] = {}
        for name, path in self._asked():
            flag = f"--{name.removesuffix('_path')}"
            if path == STDOUT and name not in ("json_path", "csv_path"):
                raise UsageError(f"{flag} can't go to stdout: give a file")
            other = taken.setdefault("-" if path == STDOUT else os.path.realpath(path), flag)
            if other != flag:
                raise UsageError(f"{other} and {flag} both go to {path}: give each a file of its own")
            if path != STDOUT:
                _check_writable(path)
            if name in PACKAGES:
                _need(flag, PACKAGES[name])

    @property
    def on_stdout(self) -> bool:
        """Whether a file goes there."""
        return STDOUT in (path for _, path in self._asked())

    def report(self, runs: Sequence[Run], not_run: NotRun | None = None, goodput: Goodput | None = None) -> bool:
        """Show and write it all, with the search that the runs were made for; whether every run can be trusted. Raises
        LoadTestError."""
        all_figures = [figures(run) for run in runs]
        told = [goodput.describe()] if goodput else []
        _write([self._shown(report_parts(all_figures, not_run), told), *self._jobs(all_figures, not_run, goodput)])
        return not any(each.invalid for each in all_figures)

    def report_comparison(self, a: str, b: str, comparison: Comparison) -> bool:
        """The same for a comparison, which is no run: JSON and CSV. Raises LoadTestError."""
        jobs = [self._shown(comparison_parts(a, b, comparison))]
        if self.json_path:
            jobs.append((self.json_path, _bytes_to(comparison_files.json_bytes(a, b, comparison))))
        if self.csv_path:
            jobs.append((self.csv_path, _bytes_to(comparison_files.csv_text(a, b, comparison).encode())))
        _write(jobs)
        return not comparison.problems

    def _asked(self) -> Iterator[tuple[str, Path]]:
        for field in fields(self):
            path: Path | None = getattr(self, field.name)
            if path is not None:
                yield field.name, path

    def _shown(self, parts: Sequence[object], told: Sequence[str] = ()) -> Job:
        """The table as a job of its own: whoever reads it may have gone, and the files are written all the same."""
        console = _Terminal(highlight=False, markup=False, stderr=self.on_stdout)

        def show(_: Path) -> None:
            console.print(*parts, sep="\n", crop=False)
            for line in told:
                console.print(line, soft_wrap=True)

        return STDOUT, show

    def _jobs(self, all_figures: Sequence[Figures], not_run: NotRun | None, goodput: Goodput | None) -> Iterator[Job]:
        if self.json_path:
            yield self.json_path, _bytes_to(files.json_bytes(all_figures, not_run, goodput))
        if self.csv_path:
            yield self.csv_path, _bytes_to(files.csv_text(all_figures, not_run, goodput).encode())
        if self.html_path:
            from tickpath.loadtest.report.page import page

            yield self.html_path, _bytes_to(page(all_figures, not_run).encode())
        if self.png_path:
            from tickpath.loadtest.report.plots import write_png

            yield from _each(self.png_path, all_figures, write_png)
        if self.hgrm_path:
            yield from _each(self.hgrm_path, all_figures, _write_hgrm)
        if self.samples_path:
            yield from _each(self.samples_path, all_figures, _write_rows)


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        """An error like others: rich would end the process. What is still to be flushed goes nowhere."""
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, self.file.fileno())
        os.close(sink)
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _check_writable(path: Path) -> None:
    """Opened as it will be, and left as it was."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: give a file")
    if not path.parent.is_dir():
        raise UsageError(f"{path} can't be written: there is no folder {path.parent}")
    target = Path(os.path.realpath(path))  # what a link that leads nowhere yet will make
    try:
        if target.is_file():
            target.open("ab").close()
        elif not target.exists():
            target.open("xb").close()
            target.unlink()
        # A device or a pipe is not opened twice: whoever reads it would see an end.
        elif not os.access(target, os.W_OK):
            raise UsageError(f"{path} can't be written: permission denied")
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}") from None


def _need(flag: str, package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError:
        raise UsageError(f"{flag} needs {package}: pip install 'tickpath[report]'") from None


def _write(jobs: Iterable[Job]) -> None:
    """One after the other, whatever becomes of those before."""
    failures = []
    for path, write in jobs:
        try:
            write(path)
        except OSError as error:
            name = "stdout" if path == STDOUT else path
            failures.append(f"{name} can't be written: {error.strerror or error}")
    if failures:
        raise LoadTestError("; ".join(failures))


def _bytes_to(content: bytes) -> Callable[[Path], None]:
    return partial(_write_bytes, content)


def _write_bytes(content: bytes, path: Path) -> None:
    if path == STDOUT:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        path.write_bytes(content)


def _write_hgrm(figures: Figures, path: Path) -> None:
    path.write_bytes(files.hgrm_bytes(figures))


def _write_rows(figures: Figures, path: Path) -> None:
    """To the very name: numpy would add .npy to another."""
    with path.open("wb") as file:
        np.save(file, figures.run.rows)


def _each(path: Path, all_figures: Sequence[Figures], write: Callable[[Figures, Path], object]) -> Iterator[Job]:
    """A file for each run: FILE.png for one, FILE-1.png, FILE-2.png and so on for several."""
    for number, each in enumerate(all_figures, 1):
        numbered = path if len(all_figures) == 1 else path.with_stem(f"{path.stem}-{number}")
        yield numbered, partial(write, each)
