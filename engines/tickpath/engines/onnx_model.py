"""All that an ONNX file says of its model without running it, in one place for every engine that takes ONNX."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.onnx_file import OnnxFile, read_onnx
from tickpath.engines.onnx_operators import check_operators, check_output_shapes, whole_graph
from tickpath.engines.onnx_spec import Inputs, Shape, declared, find_inputs, find_precision
from tickpath.engines.spec import FEED_KEY, FeedHint


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """A file that can be served as far as it tells. `shaped_by_data`: outputs whose shape may depend on data although
    the file declares it, each with the operator at fault."""

    file: OnnxFile
    inputs: Inputs
    output_names: tuple[str, ...]
    precision: str
    shaped_by_data: Mapping[str, str]
    feed: FeedHint | None


def read_model(path: Path, shapes: Mapping[str, Shape]) -> OnnxModel:
    """The model in this file, its open dimensions settled by `shapes`. Raises ModelRefusedError."""
    try:
        return _describe(read_onnx(path), shapes)
    except (LookupError, TypeError, ValueError) as error:
        # Protobuf parses what makes no sense: names that are no UTF-8, unknown enumerators, data of another length.
        raise ModelRefusedError(f"the file is damaged ({error}): copy or export it again") from None


def _describe(file: OnnxFile, shapes: Mapping[str, Shape]) -> OnnxModel:
    graph = file.model.graph
    outputs = [declared(value, "output") for value in graph.output]
    inputs = find_inputs(file, shapes)
    whole = whole_graph(file.model)
    check_operators(whole)
    names = tuple(output.name for output in outputs)
    return OnnxModel(
        file, inputs, names, find_precision(graph, outputs[0].dtype), check_output_shapes(whole), _feed(file)
    )


def _feed(file: OnnxFile) -> FeedHint | None:
    """What the file says of its feeds (see passes/streaming.py)."""
    texts = [entry.value for entry in file.model.metadata_props if entry.key == FEED_KEY]
    if not texts:
        return None
    try:
        feed = json.loads(texts[0])
        return FeedHint(int(feed["window"]), tuple((str(taken), str(given)) for taken, given in feed["states"]))
    except (LookupError, TypeError, ValueError) as error:
        raise ModelRefusedError(
            f"its metadata {FEED_KEY!r} can't be read ({error}): make it again with `tickpath streaming`"
        ) from None
