"""What is compiled: an .onnx file, or a .pt2 file, of which torch makes ONNX for the builders that take that; and its
copy beside what was made of it."""

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

import onnx

from tickpath.engines.compile.job import Job
from tickpath.engines.compile.plan_file import write_whole
from tickpath.engines.engine import Engine, ModelRefusedError
from tickpath.engines.load import load
from tickpath.engines.onnx_file import OnnxFile, read_onnx
from tickpath.engines.onnx_model import read_model
from tickpath.engines.onnx_spec import Shape
from tickpath.engines.passes import settle
from tickpath.engines.source_file import SOURCE_STEM, SUFFIXES, VERSION_STEM


def load_source(path: Path, shapes: Mapping[str, Shape], trusted: bool) -> Engine:
    """The source in its CPU engine, beside which all that is made of it is measured. Raises ModelRefusedError."""
    if path.suffix not in SUFFIXES:
        raise ModelRefusedError(
            f"{path}: {' and '.join(SUFFIXES)} files are what can be compiled: export the model as one"
        )
    return load(path, shapes, trusted=trusted)


def read_graph(job: Job) -> onnx.ModelProto:
    """The source as ONNX, sizes settled, weights within. Raises ModelRefusedError."""
    if job.source.suffix == ".onnx":
        return _settled(job, job.source)
    from tickpath.engines.torch_to_onnx import to_onnx

    with tempfile.TemporaryDirectory(prefix="tickpath-compile-") as folder:
        path = Path(folder) / "exported.onnx"
        path.write_bytes(to_onnx(job.source, job.options.trusted).SerializeToString())
        return _settled(job, path)


def put_source(job: Job) -> None:
    """A copy of the source beside what was made of it, where that is a version of a repository: the server verifies it
    by that, and builds it again from that. Raises OSError."""
    if job.out.stem != VERSION_STEM or job.source.parent.resolve() == job.out.parent.resolve():
        return
    beside = job.out.with_name(SOURCE_STEM + job.source.suffix)
    content = _in_one_file(job.source)
    if not beside.is_file() or beside.read_bytes() != content:
        write_whole(beside, content)


def _settled(job: Job, path: Path) -> onnx.ModelProto:
    model = read_model(path, job.options.shapes)
    if path == job.source and model.file.sha256 != job.recipe.source_sha256:
        raise ModelRefusedError("the file changed while it was read: compile it again")
    return settle(_with_weights(model.file), model.inputs.tensors, job.recipe.rows_fixed)


def _in_one_file(source: Path) -> bytes:
    """The file as it is, or, where its weights are in others, a model that has them within."""
    if source.suffix != ".onnx":
        return source.read_bytes()
    file = read_onnx(source)
    if hashlib.sha256(file.content).hexdigest() == file.sha256:
        return file.content
    content: bytes = _with_weights(file).SerializeToString()
    return content


def _with_weights(file: OnnxFile) -> onnx.ModelProto:
    whole = onnx.ModelProto()
    whole.CopyFrom(file.model)
    onnx.load_external_data_for_model(whole, str(file.path.parent))
    if whole.ByteSize() > onnx.checker.MAXIMUM_PROTOBUF:
        raise ModelRefusedError("over 2 GB with its weights, more than a builder takes: use a smaller model")
    return whole
