"""`compile_model`: a model file goes in; a plan, or another compiled model, and its sidecar come out.

read -> is it there already? -> build, compared with the CPU engine (on_tensorrt.py, on_cpu.py) -> publish
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tickpath.engines.compile import on_cpu
from tickpath.engines.compile.job import Job, Made
from tickpath.engines.compile.on_tensorrt import build_plan
from tickpath.engines.compile.options import TENSORRT, CompileOptions, check_output, check_targets
from tickpath.engines.compile.plan_file import BadPlanError, publish, read_plan, sidecar_path
from tickpath.engines.compile.sidecar import Recipe, Sidecar, TensorEntry
from tickpath.engines.compile.source import load_source, put_source
from tickpath.engines.compile.version_folder import whole_folder
from tickpath.engines.engine import Engine, EngineFailedError, ModelRefusedError
from tickpath.engines.spec import TensorSpec
from tickpath.engines.tensorrt import Watcher, find_tensorrt


class Unwatched:
    """A Watcher for those who want none."""

    def started(self, phase: str, parent: str | None, steps: int) -> None:
        """A phase began."""

    def stepped(self, phase: str, step: int) -> bool:
        """Always goes on."""
        return True

    def finished(self, phase: str) -> None:
        """A phase is over."""


UNWATCHED: Final = Unwatched()


@dataclass(frozen=True, slots=True)
class Compiled:
    """What stands at `path` now. `fresh`: it was built, and not found there with the same key; `notes` are of this
    compile alone, those of the plan are in its sidecar."""

    path: Path
    sidecar: Sidecar
    fresh: bool
    notes: tuple[str, ...] = ()


def compile_model(
    source: Path,
    out: Path,
    options: CompileOptions,
    reference: Engine | None = None,
    watcher: Watcher = UNWATCHED,
    timing_cache: Path | None = None,
    force: bool = False,
) -> Compiled:
    """Compile `source` to `out`, unless that is there already, whole and of the same recipe. `reference`: the source in
    its CPU engine, where it is loaded already. Raises ModelRefusedError, in one line that begins with the file's name,
    BuildStoppedError."""
    check_output(out, options.engine)
    reference = reference or load_source(source, options.shapes, options.trusted)
    try:
        _check_place(source, out)
        recipe = _recipe(source, options, reference)
        if timing_cache is not None and not _keeps_timing_cache(options.engine):
            raise ModelRefusedError(f"{recipe.runtime} keeps no timing cache: leave --timing-cache out")
        with whole_folder(out) as place:
            job = Job(source, place, options, reference, recipe)
            compiled = _found_or_made(job, watcher, timing_cache, force)
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{source}: {error}") from None
    except EngineFailedError as error:
        raise ModelRefusedError(f"{source}: it does not run as converted ({error})") from None
    except OSError as error:
        raise ModelRefusedError(f"{source}: {out}: can't be written: {error.strerror}") from None
    return replace(compiled, path=out)


def _check_place(source: Path, out: Path) -> None:
    if out.exists() and out.samefile(source):
        raise ModelRefusedError("the model itself is no place for what is made of it: name another file")


def _recipe(source: Path, options: CompileOptions, reference: Engine) -> Recipe:
    spec = reference.spec
    runtime = _runtime(source, options)
    # What takes an input with a default for a constant does not ask for it.
    takes_defaults = options.engine in {"onnxruntime", "torch"}
    inputs = [tensor for tensor in spec.inputs if takes_defaults or not tensor.optional]
    return Recipe(spec.sha256, runtime, _entries(inputs), _entries(spec.outputs), spec.rows_fixed, options)


def _entries(tensors: Sequence[TensorSpec]) -> tuple[TensorEntry, ...]:
    return tuple(map(TensorEntry.of, tensors))


def _runtime(source: Path, options: CompileOptions) -> str:
    """The runtime that will build. Raises ModelRefusedError where it is not there or can't do what is asked."""
    if options.engine in TENSORRT:
        tensorrt = find_tensorrt(options.engine)
        check_targets(options.targets, tensorrt.targets, tensorrt.runtime)
        return tensorrt.runtime
    if options.targets:
        raise ModelRefusedError(f"{options.engine} runs on the CPU: leave --gpu out")
    if options.precision == "tf32":
        raise ModelRefusedError(f"{options.engine} has no TF32, which is a GPU's: use --precision fp32")
    return on_cpu.runtime(source, options)


def _found_or_made(job: Job, watcher: Watcher, timing_cache: Path | None, force: bool) -> Compiled:
    found, told = _look(job)
    if found is not None and not force:
        put_source(job)
        return Compiled(job.out, found, fresh=False)
    made = build_plan(job, watcher, timing_cache) if job.options.engine in TENSORRT else on_cpu.build(job)
    put_source(job)
    return Compiled(job.out, _publish(job, made), fresh=True, notes=(*told, *made.told))


def _look(job: Job) -> tuple[Sidecar | None, tuple[str, ...]]:
    """What is there with this key; and what is wrong with what is there, if it is."""
    if not job.out.exists() and not sidecar_path(job.out).exists():
        return None, ()
    try:
        plan = read_plan(job.out)
    except BadPlanError as error:
        return None, (f"{error} (which was done)",)
    return (plan.sidecar if plan.sidecar.recipe.key == job.recipe.key else None), ()


def _keeps_timing_cache(engine: str) -> bool:
    return engine in TENSORRT and find_tensorrt(engine).keeps_timing_cache


def _publish(job: Job, made: Made) -> Sidecar:
    sidecar = Sidecar(
        recipe=job.recipe,
        plan_sha256=hashlib.sha256(made.content).hexdigest(),
        plan_bytes=len(made.content),
        patterns=job.patterns(),
        parity=made.parity,
        notes=made.notes,
    )
    publish(job.out, made.content, sidecar)
    return sidecar
