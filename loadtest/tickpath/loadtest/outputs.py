"""Where the figures of runs go: a table for people, and the files that were asked for."""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.report import files
from tickpath.loadtest.report.figures import Figures, figures
from tickpath.loadtest.report.terminal import report_parts
from tickpath.loadtest.run import Run
from tickpath.loadtest.series import NotRun

STDOUT: Final = Path("-")

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
        """Before anything is measured: whether it could be written. Raises LoadTestError."""
        for name, path in self._asked():
            if path.is_dir():
                raise LoadTestError(f"{path} is a folder: give a file")
            if not path.parent.is_dir():
                raise LoadTestError(f"{path} can't be written: there is no folder {path.parent}")
            if path == STDOUT and name not in ("json_path", "csv_path"):
                raise LoadTestError(f"--{name.removesuffix('_path')} can't go to stdout: give a file")
            if name in PACKAGES:
                _need(name, PACKAGES[name])

    @property
    def on_stdout(self) -> bool:
        """Whether a file goes there."""
        return STDOUT in (path for _, path in self._asked())

    def report(self, runs: Sequence[Run], not_run: NotRun | None = None) -> bool:
        """Show and write it all; whether every run can be trusted. Raises LoadTestError."""
        all_figures = [figures(run) for run in runs]
        console = Console(highlight=False, markup=False, stderr=self.on_stdout)
        console.print(*report_parts(all_figures, not_run), sep="\n", crop=False)
        try:
            self._write(all_figures, not_run)
        except OSError as error:
            raise LoadTestError(f"{error.filename}: {error.strerror}") from None
        return not any(each.invalid for each in all_figures)

    def _asked(self) -> Iterator[tuple[str, Path]]:
        for field in fields(self):
            path: Path | None = getattr(self, field.name)
            if path is not None:
                yield field.name, path

    def _write(self, all_figures: Sequence[Figures], not_run: NotRun | None) -> None:
        if self.json_path:
            _write_bytes(self.json_path, files.json_bytes(all_figures, not_run))
        if self.csv_path:
            _write_bytes(self.csv_path, files.csv_text(all_figures, not_run).encode())
        if self.html_path:
            from tickpath.loadtest.report.page import page

            self.html_path.write_text(page(all_figures, not_run), "utf-8")
        if self.png_path:
            from tickpath.loadtest.report.plots import write_png

            _each(self.png_path, all_figures, write_png)
        if self.hgrm_path:
            _each(self.hgrm_path, all_figures, lambda path, each: path.write_bytes(files.hgrm_bytes(each)))
        if self.samples_path:
            _each(self.samples_path, all_figures, lambda path, each: np.save(path, each.run.rows))


def _need(name: str, package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError:
        flag = name.removesuffix("_path")
        raise LoadTestError(f"--{flag} needs {package}: pip install 'tickpath[report]'") from None


def _write_bytes(path: Path, content: bytes) -> None:
    if path == STDOUT:
        sys.stdout.buffer.write(content)
    else:
        path.write_bytes(content)


def _each(path: Path, all_figures: Sequence[Figures], write: Callable[[Path, Figures], object]) -> None:
    """A file for each run: FILE.png for one, FILE-1.png, FILE-2.png and so on for several."""
    for number, each in enumerate(all_figures, 1):
        write(path if len(all_figures) == 1 else path.with_stem(f"{path.stem}-{number}"), each)
