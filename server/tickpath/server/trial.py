"""A model put to the proof, in the process that is there for it: all that a load does; or, of a plan without a GPU, all
that can be done without one."""

from pathlib import Path

import msgspec

from tickpath.engines import ModelRefusedError
from tickpath.engines.compile import BadPlanError, read_plan
from tickpath.engines.source_file import source_beside
from tickpath.server.model import PreparedModel, prepare_model
from tickpath.server.proof import Proven, Task
from tickpath.server.verification import Report, verify


def prove(task: Task) -> Proven:
    """Load, capture, warm and verify. Raises ModelRefusedError."""
    model = prepare_model(task.model, None, task.frame_bytes_max)
    return _proven(task, model, verify(task.model, model.engine, model.lane.slots))


def rehearse(task: Task) -> Proven:
    """What can be proven of a plan that nothing here can run: that it is whole and what its sidecar says, and that what
    it was made of can be served in its place, right by the same golden sample. Raises ModelRefusedError."""
    path = Path(task.model.path)
    recipe = read_plan(path).sidecar.recipe
    if (source := source_beside(path)) is None:
        raise ModelRefusedError(
            f"{path}: no GPU here to run it on, and no source.onnx beside it to judge by: compile it to where it lies"
        )
    config = msgspec.structs.replace(task.model, path=str(source), buckets=task.model.buckets or recipe.options.buckets)
    model = prepare_model(config, None, task.frame_bytes_max)
    spec = model.engine.spec
    if spec.sha256 != recipe.source_sha256 and spec.describe() != recipe.spec("", "").describe():
        raise BadPlanError(f"{path}: {source.name} is not what it was made of: compile the model again")
    told = (
        f"no GPU here, so {path.name} was not run; it is whole, and as its sidecar says: {recipe.runtime}, "
        f"{recipe.options.precision}, for {','.join(recipe.options.targets) or 'the GPUs of that release'}, "
        f"from {source.name}, which was run on the CPU instead"
    )
    proven = _proven(task, model, verify(config, model.engine, model.lane.slots))
    return msgspec.structs.replace(proven, not_run=told)


def _proven(task: Task, model: PreparedModel, report: Report) -> Proven:
    spec = model.engine.spec
    return Proven(
        model=task.model.served_name,
        version=task.model.version,
        inputs=model.inputs,
        outputs=model.outputs,
        buckets=model.buckets,
        compute_ns=tuple(model.lane.compute_ns),
        runtime=spec.runtime,
        precision=spec.precision,
        sha256=spec.sha256,
        rows_fixed=spec.rows_fixed,
        feed=spec.feed,
        verified=report,
    )
