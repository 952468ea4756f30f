"""From what was typed to a compile, a progress bar meanwhile, and what there is to say of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tickpath.console.errors import ConsoleError
from tickpath.engines import EngineSpec, ModelRefusedError
from tickpath.engines.compile import ENGINES, SUFFIXES, Compiled, CompileOptions, Sidecar, compile_model
from tickpath.engines.compile.options import check_output
from tickpath.engines.compile.source import load_source
from tickpath.engines.onnx_spec import Shape
from tickpath.engines.tensorrt import MODULES, find_tensorrt
from tickpath.graphs import BucketError, resolve_buckets

Kind = TypeVar("Kind")

# Phases nest; what one deeper does is the builder's own affair.
PHASES_MAX: Final = 4


def run(source: Path, out: Path, asked: dict[str, object], timing_cache: Path | None, force: bool) -> Compiled:
    """Compile. `asked`: the fields of CompileOptions that were typed. Raises ConsoleError, ModelRefusedError."""
    engine = asked.get("engine") or _pick_engine(out)
    check_output(out, str(engine))
    shapes, trusted = _convert(asked.get("shapes", {}), dict[str, Shape]), _convert(asked.get("trusted", False), bool)
    reference = load_source(source, shapes, trusted)
    buckets = _buckets(source, reference.spec, asked)
    options = _convert({**asked, "engine": engine, "buckets": buckets}, CompileOptions)
    with _bars() as bars:
        return compile_model(source, out, options, reference, bars, timing_cache, force)


def describe(compiled: Compiled) -> str:
    """For people: what there is now, and how far it is from its source."""
    sidecar, options = compiled.sidecar, compiled.sidecar.recipe.options
    verb = "compiled" if compiled.fresh else "is up to date"
    lines = [
        *compiled.notes,
        f"{compiled.path} {verb}: {sidecar.recipe.runtime}, {options.precision}, buckets "
        f"{','.join(map(str, options.buckets))}, {_size(sidecar)}",
        *(f"note: {note}" for note in sidecar.notes),
    ]
    if sidecar.parity is not None:
        lines += ["What was compiled, run on the CPU, beside its source:", sidecar.parity.describe()]
    return "\n".join(lines)


def _size(sidecar: Sidecar) -> str:
    return f"{sidecar.plan_bytes / 1e6:.1f} MB"


def _convert(values: object, kind: type[Kind]) -> Kind:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ConsoleError(str(error)) from None


def _pick_engine(out: Path) -> str:
    """What writes such files; of the TensorRTs the one that is installed, the data-centre one first."""
    fitting = [engine for engine in ENGINES if SUFFIXES[engine] == out.suffix]
    if not fitting:
        raise ConsoleError(f"{out}: name a {' or '.join(sorted(set(SUFFIXES.values())))} file")
    problems = []
    for engine in fitting:
        if engine not in MODULES:
            return engine
        try:
            return find_tensorrt(engine).name
        except ModelRefusedError as error:
            problems.append(str(error))
    raise ConsoleError("; ".join(problems))


def _buckets(source: Path, spec: EngineSpec, asked: dict[str, object]) -> tuple[int, ...]:
    buckets = asked.get("buckets")
    assert buckets is None or isinstance(buckets, tuple)
    if buckets is not None and list(buckets) != sorted(set(buckets)):
        raise ConsoleError(f"--buckets must ascend, {','.join(map(str, buckets))} came")
    try:
        return resolve_buckets(buckets, spec.batched, spec.rows_fixed)
    except BucketError as error:
        raise ConsoleError(f"{source}: {error}") from None


class Bars:
    """A Watcher that draws a bar for each phase at work, the outermost first."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def started(self, phase: str, parent: str | None, steps: int) -> None:
        """A phase began."""
        if len(self._tasks) < PHASES_MAX:
            self._tasks[phase] = self._progress.add_task(phase, total=steps)

    def stepped(self, phase: str, step: int) -> bool:
        """A step is done; Ctrl-C ends a build, and not this."""
        if phase in self._tasks:
            self._progress.update(self._tasks[phase], completed=step + 1)
        return True

    def finished(self, phase: str) -> None:
        """A phase is over."""
        if phase in self._tasks:
            self._progress.remove_task(self._tasks.pop(phase))


@contextmanager
def _bars() -> Iterator[Bars]:
    """Drawn on stderr, where that is a terminal; gone when the build is."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bars(progress)
