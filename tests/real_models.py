"""What is known of each real model: what it needs declared, and why those that can't be served can't be."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tickpath.engines.onnx_spec import Shape

# The sizes that a file leaves open, or an axis that is to be the batch.
SHAPES: Final[Mapping[str, Mapping[str, Shape]]] = {
    "deeplob_serve/model_b8.onnx": {"lob_window": ("N", 100, 40)},
    "gonnx/gru.onnx": {"data_input": ("N", 4, 3)},
    "gonnx/ndm.onnx": {"sensor_input": ("N", 6, 4)},
    "polygraphy/attention.onnx": {"q": ("N", 4, 8), "k": ("N", 8, 4), "v": ("N", 4, 8)},
    "silero_vad/silero_vad.onnx": {"input": ("N", 576), "state": (2, "N", 128)},
    "silero_vad/silero_vad_16k_op15.onnx": {"input": ("N", 576)},
    "silero_vad/silero_vad_16k_sequence.onnx": {"input": (5, 576)},
    "silero_vad/silero_vad_half.onnx": {"input": ("N", 576)},
    "silero_vad/silero_vad_op18_ifless.onnx": {"input": ("N", 576)},
}

# Why a file can't be served, in words of the refusal. Every other file has to be.
REFUSED: Final[Mapping[str, str]] = {
    "gonnx/mnist-8-opset13.onnx": "Git LFS pointer",
    "onnxruntime_datasets/logreg_iris.onnx": "output 'probabilities' is a sequence value",
    "onnxruntime_go/example_0_dim_output.onnx": "output 'y' depends on the data (operator 'Expand')",
    "onnxruntime_go/example_float16.onnx": "output 'OutputA' has element type bfloat16",
    "onnxruntime_go/example_needs_extensions.onnx": "output 'output' has element type string",
    "onnxruntime_go/example_strings.onnx": "output 'output_lower' has element type string",
    "onnxruntime_go/sklearn_randomforest.onnx": "output 'output_probability' is a sequence value",
    "polygraphy/bad_graph_with_dup_value_info.onnx": "two inputs are named 'inp'",
    "polygraphy/bad_graph_with_no_import_domains.onnx": "imports no operator set",
    "polygraphy/bad_graph_with_parallel_invalid_nodes.onnx": "output 'add_out_8' depends on the data",
    "polygraphy/capability.onnx": "No Op registered for FAKE!",
    "polygraphy/custom_op_node.onnx": "operator 'NegPos' is from 'ai.onnx.contrib'",
    "polygraphy/empty_tensor_expand.onnx": "output 'expanded' has a dimension of size 0",
    "polygraphy/ext_weights.onnx": "the weights of 'a' are in 'ext_weights.data', which is not beside the model",
    "polygraphy/matmul.bf16.onnx": "output 'matmul_out_0' has element type bfloat16",
    "polygraphy/nonzero.onnx": "output 'nonzero_out_0' depends on the data (operator 'NonZero')",
}

# What a file needs said before it is served, in words of the refusal without it.
UNDECLARED: Final[Mapping[str, str]] = {
    "gonnx/gru.onnx": "--shape data_input=N,SIZE,3",
    "gonnx/ndm.onnx": "--shape sensor_input=N,SIZE,4",
    "polygraphy/attention.onnx": "--shape q=N,SIZE",
    "silero_vad/silero_vad.onnx": "--shape state=2,N,128",
    "silero_vad/silero_vad_16k_op15.onnx": "--shape input=N,SIZE",
    "silero_vad/silero_vad_16k_sequence.onnx": "a row's answer depends on the other rows",
    "silero_vad/silero_vad_half.onnx": "--shape input=N,SIZE",
    "silero_vad/silero_vad_op18_ifless.onnx": "--shape input=N,SIZE",
}

# Scalars whose values matter.
SCALARS: Final[Mapping[str, int]] = {"sr": 16000}

# A recurrent model's state: what comes out goes in again with the next request.
STATES: Final[Mapping[str, Mapping[str, str]]] = {
    "gonnx/gru.onnx": {"hidden_out": "init_hidden"},
    "silero_vad/silero_vad.onnx": {"stateN": "state"},
    "silero_vad/silero_vad_16k_op15.onnx": {"stateN": "state"},
    "silero_vad/silero_vad_16k_sequence.onnx": {"hn": "h", "cn": "c"},
    "silero_vad/silero_vad_half.onnx": {"stateN": "state"},
    "silero_vad/silero_vad_op18_ifless.onnx": {"stateN": "state"},
}


def name_of(path: Path, root: Path) -> str:
    """How the tables above call a model, from the folder of all models."""
    return path.relative_to(root).as_posix()


def served_name(name: str) -> str:
    """The same as a name that a server takes: most of the files are called model.onnx."""
    return name.removesuffix(".onnx").replace("/", ".")
