"""Programs of torch.export: what is served, and in one line why the rest is not."""

import os
import pickle
import re
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.compile.programs import Module, added, export, replaced, rewritten, scaled
from tests.conformance.test_engine import capture
from tests.onnx_models import save

from tickpath.engines import ModelRefusedError, zoo
from tickpath.engines.load import load
from tickpath.engines.onnxruntime import load_onnx
from tickpath.engines.passes import TOLERANCES, measure_parity, refuse
from tickpath.engines.torch_exported import RUNTIME, load_exported
from tickpath.engines.zoo.exported import export_program

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * PAGE


@pytest.mark.parametrize("name", ["null", "mlp", "gru", "deeplob", "lstm_a"])
def test_zoo_models_answer_as_in_onnxruntime(name: str, tmp_path: Path) -> None:
    proto = zoo.build(name)
    exported = tmp_path / "model.pt2"
    exported.write_bytes(export_program(proto))
    reference, candidate = load_onnx(save(proto, tmp_path)), load(exported)
    assert candidate.spec.describe() == reference.spec.describe()
    assert (candidate.spec.runtime, candidate.spec.precision) == (RUNTIME, "float32")
    refuse(measure_parity(reference, candidate, [1, 4]), TOLERANCES["fp32"])


def test_an_operator_the_exporter_does_not_know(tmp_path: Path) -> None:
    proto = zoo.build("mlp")
    proto.graph.node[0].op_type = "Erf"
    with pytest.raises(ModelRefusedError, match="operator 'Erf' is not among"):
        export_program(proto)


def test_a_file_is_known_by_what_it_holds(tmp_path: Path) -> None:
    path = export(tmp_path, scaled).rename(tmp_path / "model.bin")
    assert load(path).spec.runtime == RUNTIME


def test_replays_keep_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(export_program(zoo.build("mlp")))
    bound = capture(load(path), 8)
    for _ in range(500):
        bound.graph.replay()
    before = resident_bytes()
    for _ in range(10_000):
        bound.graph.replay()
    assert resident_bytes() - before < 2_000_000, "200 bytes a replay would be more"


def test_one_thread_wherever_it_runs(tmp_path: Path) -> None:
    path = export(tmp_path, lambda module, x: torch.relu(x @ x.T.contiguous() @ x), torch.randn(1, 512, 512)[0], ())
    bound = capture(load(path), 1)
    seen: list[int] = []

    def run() -> None:
        bound.graph.replay()
        seen.append(torch.get_num_threads())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [1]


def test_a_dictionary_names_the_outputs(tmp_path: Path) -> None:
    path = export(tmp_path, lambda module, x: {"logits": x + 1, "total": x.sum(1)})
    assert load(path).spec.describe() == "x float32[N,3] -> logits float32[N,3], total float32[N]"


def test_weights_are_the_files_own(tmp_path: Path) -> None:
    bound = capture(load(export(tmp_path, scaled, state=torch.tensor([1.0, 2.0, 3.0]))), 2)
    assert bound([np.ones((2, 3), np.float32)])[0].tolist() == [[1, 2, 3], [1, 2, 3]]


def test_gradients_are_off(tmp_path: Path) -> None:
    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.layer(x)
            return y

    path = tmp_path / "model.pt2"
    dynamic = {"x": {0: torch.export.Dim("batch")}}
    torch.export.save(torch.export.export(Linear(), (torch.randn(3, 3),), dynamic_shapes=dynamic), path)
    capture(load(path), 1).graph.replay()


@pytest.mark.parametrize("dim", [torch.export.Dim("batch"), torch.export.Dim.AUTO, torch.export.Dim.DYNAMIC])
def test_an_open_batch_has_every_bucket(dim: object, tmp_path: Path) -> None:
    """The exporter writes "2 or more" for most of these."""
    engine = load(export(tmp_path, scaled, dims=(dim,)))
    for rows in (1, 2, 7):
        assert capture(engine, rows)([np.ones((rows, 3), np.float32)])[0].tolist() == [[1, 1, 1]] * rows


def test_a_pinned_batch_is_fixed(tmp_path: Path) -> None:
    path = export(tmp_path, scaled, dims=())
    assert load(path).spec.describe() == "x float32[3,3] -> mul float32[3,3]"
    spec = load(path, {"x": ("N", 3)}).spec
    assert (spec.describe(), spec.rows_fixed) == ("x float32[N,3] -> mul float32[N,3]", 3)


def test_a_bucket_larger_than_exported(tmp_path: Path) -> None:
    engine = load(export(tmp_path, scaled, dims=(torch.export.Dim("batch", min=1, max=4),)))
    capture(engine, 4)
    with pytest.raises(ModelRefusedError, match="bucket of 5 rows, and the program was exported for 4 at most"):
        capture(engine, 5)


def test_a_batch_that_may_not_be_small(tmp_path: Path) -> None:
    path = export(tmp_path, scaled, torch.randn(9, 3), (torch.export.Dim("batch", min=8),))
    with pytest.raises(ModelRefusedError, match="batch axis of 'x' was exported for 8 rows or more"):
        load(path)


def test_open_dimensions_other_than_the_batch(tmp_path: Path) -> None:
    dims = (torch.export.Dim("batch"), torch.export.Dim("steps"))
    path = export(tmp_path, lambda module, x: x.sum(1), torch.randn(3, 5, 2), dims)
    with pytest.raises(ModelRefusedError, match=r"has open dimensions .* --shape x=N,SIZE,2"):
        load(path)
    assert load(path, {"x": ("N", 6, 2)}).spec.inputs[0].shape == (1, 6, 2)


def test_state_that_is_kept_between_requests(tmp_path: Path) -> None:
    def count(module: Module, x: torch.Tensor) -> torch.Tensor:
        module.state.add_(1)
        return x + module.state

    with pytest.raises(ModelRefusedError, match="it changes 'state', so answers depend on those before"):
        load(export(tmp_path, count))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64])
def test_element_types_that_are_not_served(dtype: torch.dtype, tmp_path: Path) -> None:
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ModelRefusedError, match=f"input 'x' has element type {name}, which is not served"):
        load(export(tmp_path, lambda module, x: x + 1, torch.zeros(3, 3, dtype=dtype)))
    with pytest.raises(ModelRefusedError, match=f"output 'to(_\\d)?' has element type {name}|output .* {name}"):
        load(export(tmp_path, lambda module, x: x.to(dtype)))


def test_an_input_that_is_written_to(tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match="it changes 'x', so answers depend on those before"):
        load(export(tmp_path, lambda module, x: x.relu_()))


def test_what_is_made_on_the_way_may_be_written_to(tmp_path: Path) -> None:
    bound = capture(load(export(tmp_path, lambda module, x: (x + 1).relu_())), 1)
    assert bound([np.array([[-2, 0, 2]], np.float32)])[0].tolist() == [[0, 1, 3]]


def test_rows_that_depend_on_each_other(tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match="a row's answer depends on the other rows"):
        load(export(tmp_path, lambda module, x: x - x.mean(0)))


def test_an_operator_that_is_not_built_in(tmp_path: Path) -> None:
    path = replaced(export(tmp_path, scaled), "model.json", "torch.ops.aten.mul.Tensor", "torch.ops.mine.mul.Tensor")
    with pytest.raises(ModelRefusedError, match="operator mine::mul is from a set that is not built in"):
        load(path)


# What is no program of torch.export, and half of one


@pytest.mark.parametrize("share", [0.25, 0.5, 0.99])
def test_a_file_half_copied(share: float, tmp_path: Path) -> None:
    path = export(tmp_path, scaled)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(
        ModelRefusedError, match=r"model.pt2: (a zip archive without its end: the file|the archive) is truncated"
    ):
        load(path)


def test_a_flipped_bit(tmp_path: Path) -> None:
    path = export(tmp_path, scaled, state=torch.arange(3.0) + 0.1)
    weights = (torch.arange(3.0) + 0.1).numpy().tobytes()
    content = path.read_bytes()
    assert content.count(weights) == 1
    path.write_bytes(content.replace(weights, bytes([weights[0] ^ 1]) + weights[1:]))
    with pytest.raises(ModelRefusedError, match=r"truncated or damaged .*CRC"):
        load(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"\x80\x02}q\x00.", "a Python pickle"),
        (b"\x00\x01\x02 nothing", "not an exported PyTorch program, which is a zip archive"),
    ],
)
def test_files_that_are_something_else(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    with pytest.raises(ModelRefusedError, match=words):
        load(path)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match=r"absent.pt2: no such file"):
        load(tmp_path / "absent.pt2")


def test_a_checkpoint_and_torchscript(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    torch.save(torch.nn.Linear(2, 2).state_dict(), path)
    with pytest.raises(ModelRefusedError, match="a checkpoint, weights without a model"):
        load(path)
    path = added(path, "code/__torch__.py", b"")
    with pytest.raises(ModelRefusedError, match="this is TorchScript"):
        load(path)


def test_a_program_that_makes_no_sense(tmp_path: Path) -> None:
    path = replaced(export(tmp_path, scaled), "model.json", "torch.ops.aten.mul.Tensor", "torch.ops.aten.mil.Tensor")
    with pytest.raises(ModelRefusedError, match=f"{re.escape(RUNTIME)} does not take this program"):
        load(path)


def test_a_damaged_description(tmp_path: Path) -> None:
    path = rewritten(
        export(tmp_path, scaled), lambda name, content: content[:-9] if name.endswith("models/model.json") else content
    )
    with pytest.raises(ModelRefusedError, match=r"'models/model.json' in the archive is damaged"):
        load(path)


# What a stranger's file would run


class Planted:
    """Unpickled, it writes a file."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.mkdir, (str(self._target),)


def test_pickled_sample_inputs_are_not_read(tmp_path: Path) -> None:
    planted = pickle.dumps(Planted(tmp_path / "ran"))
    path = rewritten(export(tmp_path, scaled), lambda name, content: planted if "sample_inputs" in name else content)
    load(path)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ModelRefusedError):
        load_exported(path, trusted=True)
    assert (tmp_path / "ran").exists(), "else this test shows nothing"


def test_an_expression_that_is_code(tmp_path: Path) -> None:
    code = f"__import__('os').mkdir('{tmp_path / 'ran'}')"
    path = replaced(export(tmp_path, scaled), "model.json", "Symbol('", f"{code} or Symbol('")
    with pytest.raises(
        ModelRefusedError, match=r"is more than arithmetic, and loading that can run any code: .* --trust"
    ):
        load(path)
    assert not (tmp_path / "ran").exists()


def test_guards_are_not_run(tmp_path: Path) -> None:
    path = export(tmp_path, lambda module, x: (x + 1).relu_())
    guard = f"__import__('os').makedirs('{tmp_path / 'ran'}', exist_ok=True) is None"
    path = replaced(path, "model.json", '"guards_code": []', f'"guards_code": ["{guard}"]')
    load(path)
    assert not (tmp_path / "ran").exists()
    load(path, trusted=True)
    assert (tmp_path / "ran").exists(), "else this test shows nothing"


def test_a_name_that_is_code(tmp_path: Path) -> None:
    path = replaced(export(tmp_path, scaled), "model.json", '"x"', '"x=__import__(0)"')
    with pytest.raises(ModelRefusedError, match="is more than a name"):
        load(path)


@pytest.mark.parametrize(
    "function",
    [
        "torch.os.system",
        "torch.ops.load_library",
        "torch.hub.load",
        "_operator.methodcaller",
        "torch.ops.aten.from_file.default",
        "torch.ops.higher_order.triton_kernel_wrapper_mutation",
        "torch.ops.aten.mul.__class__",
    ],
)
def test_functions_that_are_no_operators(function: str, tmp_path: Path) -> None:
    path = replaced(export(tmp_path, scaled), "model.json", "torch.ops.aten.mul.Tensor", function)
    with pytest.raises(ModelRefusedError, match=f"it calls '{function}'|is not built in"):
        load(path)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("data/constants/custom_obj_0", "a pickled object"),
        ("data/constants/opaque_obj_0", "a pickled object"),
        ("data/weights/model.pt", "its weights are pickled"),
        ("data/aotinductor/model/code.wrapper.so", "machine code"),
    ],
)
def test_entries_that_are_more_than_data(entry: str, words: str, tmp_path: Path) -> None:
    path = added(export(tmp_path, scaled), entry, b"\x80\x02.")
    with pytest.raises(ModelRefusedError, match=rf"{words}.* use --trust if you know who made the file"):
        load(path)


def test_pickled_weights(tmp_path: Path) -> None:
    path = replaced(export(tmp_path, scaled), "weights_config.json", '"use_pickle": false', '"use_pickle": true')
    with pytest.raises(ModelRefusedError, match="its weights are pickled"):
        load(path)


def test_a_tree_of_strange_types(tmp_path: Path) -> None:
    path = replaced(export(tmp_path, scaled), "model.json", "builtins.tuple", "os.system")
    with pytest.raises(ModelRefusedError, match=r"inputs or outputs are of type 'os.system'"):
        load(path)


def test_a_trusted_file_is_taken_as_it_is(tmp_path: Path) -> None:
    path = export(tmp_path, scaled)
    plain, trusted = load(path).spec, load(path, trusted=True).spec
    assert plain == trusted
