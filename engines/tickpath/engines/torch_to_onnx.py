"""A program of torch.export as an ONNX model, for the builders that take ONNX. torch's own exporter does it."""

from importlib.util import find_spec
from pathlib import Path

import onnx
import torch

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.torch_exported import RUNTIME, load_program, output_names, said, silence, user_inputs


def to_onnx(path: Path, trusted: bool = False) -> onnx.ModelProto:
    """The program in this .pt2 file, inputs and outputs called as the torch engine calls them. What is open in the
    program, the batch above all, stays open. Raises ModelRefusedError, which does not name the file."""
    if not find_spec("onnxscript"):
        raise ModelRefusedError("torch makes ONNX of a program with onnxscript: pip install 'tickpath[torch]'")
    exported = load_program(path, trusted).exported
    try:
        with silence():
            program = torch.onnx.export(
                exported, input_names=user_inputs(exported), output_names=output_names(exported), verbose=False
            )
            assert program is not None, "no file is named"
            model: onnx.ModelProto = program.model_proto
    except Exception as error:  # whatever a translation of one operator raises
        raise ModelRefusedError(
            f"{RUNTIME} makes no ONNX of this program ({said(error)}): export the model as .onnx"
        ) from None
    return model
