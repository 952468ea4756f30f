"""Reads a .pt2 file whole and says what is wrong with it, before torch sees it.

torch.export.load is for files one trusts: it evaluates the expressions in the file, looks up whatever function the file
names, and unpickles. A file that was made by torch.export.save from a plain model needs none of that: its weights are
raw bytes, its expressions are sizes, its functions are operators. What is more than that is refused here, unless the
caller trusts the file:
- pickles, other than those that torch's weights-only reader takes (torch_exported.py tries it);
- functions outside torch's own operator sets, and those that read files;
- expressions that are more than arithmetic on sizes, and names that are more than names, since torch writes Python from
  both (the guards of a file, which are Python already, are left out: nothing here runs them);
- machine code (an AOTInductor package), which can't be looked through at all.
What was looked at is packed anew for torch, whose own reader of archives could find something else in the same bytes.
"""

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.model_file import what_it_is
from tickpath.engines.onnx_file import read_whole

SUFFIX: Final = ".pt2"

FORMAT: Final = "archive_format"

OPERATOR: Final = re.compile(r"torch\.ops\.(aten|prims|quantized|quantized_decomposed)(\.(?!__)\w+){1,2}")
CONTROL: Final = re.compile(r"torch\.ops\.higher_order\.(cond|wrap_with_set_grad_enabled)")
PYTHON: Final = re.compile(
    r"_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_)"
    r"|math\.(ceil|floor|trunc|sqrt)|torch\.sym_(max|min|not|int|float|ite|sum)"
)

# These read files of the machine.
FILES: Final = frozenset({"torch.ops.aten.from_file.default", "torch.ops.aten.from_file.out"})

EXPRESSION: Final = re.compile(r"(?:[A-Za-z_]\w*|'[A-Za-z]\w*'|\d+(?:\.\d+)?|[()\s,=+\-*/<>!&|~])*")
WORDS: Final = frozenset(
    word
    for words in (
        "Symbol Integer Rational Add Mul Pow Mod Max Min Abs Eq Ne Lt Le Gt Ge And Or Not floor ceiling Where Identity",
        "FloorDiv CeilDiv CleanDiv ModularIndexing PythonMod PowByNatural IntTrueDiv FloatTrueDiv",
        "ToFloat TruncToInt FloorToInt CeilToInt True False true false integer positive nonnegative negative real zero",
    )
    for word in words.split()
)
SIZE: Final = re.compile(r"[suz]\d+")

# What tensors, modules and releases are called; and the places where text is never made into Python.
NAME: Final = re.compile(r"[\w.+\-]*")
FREE_TEXT: Final = frozenset({"as_string", "as_strings", "expr_str", "guards_code", "in_spec", "metadata", "out_spec"})

TREES: Final = frozenset(
    {
        None,
        "builtins.dict",
        "builtins.list",
        "builtins.tuple",
        "collections.OrderedDict",
        "torch.fx.immutable_collections.immutable_dict",
        "torch.fx.immutable_collections.immutable_list",
    }
)


@dataclass(frozen=True, slots=True)
class Pt2File:
    """A whole archive. `content` is what torch is to be given, `sha256` that of the file; `programs` are the names of
    the exported programs in it, `compiled` those of AOTInductor's."""

    content: bytes
    sha256: str
    programs: tuple[str, ...]
    compiled: tuple[str, ...]


def is_pt2(path: Path) -> bool:
    """Whether the file is an archive of torch.export, or is called so and must say why it is none."""
    if path.suffix == SUFFIX:
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(f"/{FORMAT}") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def read_pt2(path: Path, trusted: bool) -> Pt2File:
    """The file, whole and, unless it is `trusted`, looked through. Raises ModelRefusedError."""
    content = read_whole(path)
    entries = _entries(content)
    programs = tuple(name[7:-5] for name in entries if re.fullmatch(r"models/[^/]+\.json", name))
    compiled = tuple({name.split("/")[2] for name in entries if name.startswith("data/aotinductor/")})
    if not programs and not compiled:
        raise ModelRefusedError("the archive holds no exported program: save one with torch.export.save")
    sha256 = hashlib.sha256(content).hexdigest()
    if not trusted:
        _look_through(entries, compiled)
        content = _packed(entries)
    return Pt2File(content, sha256, programs, compiled)


def _entries(content: bytes) -> dict[str, bytes]:
    """What the archive holds, without the one folder that all of it lies in."""
    again = "copy or export it again"
    if (what := what_it_is(content, SUFFIX)) is not None:
        raise ModelRefusedError(f"this is {what}")
    if not content.startswith(b"PK"):
        raise ModelRefusedError(f"{len(content)} bytes that are no .pt2 archive; {again} with torch.export.save")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if min((info.header_offset for info in archive.infolist()), default=0) > 0:
                raise zipfile.BadZipFile("its end is that of an archive within it")
            entries = {info.filename.partition("/")[2]: archive.read(info) for info in archive.infolist()}
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise ModelRefusedError(f"the archive is truncated or damaged ({error}): {again}") from None
    _check_format(entries)
    return entries


def _check_format(entries: Mapping[str, bytes]) -> None:
    if FORMAT in entries:
        if entries[FORMAT] == b"pt2":
            return
        raise ModelRefusedError(
            f"an archive of format {entries[FORMAT][:20]!r}, not pt2: save it with torch.export.save"
        )
    if "constants.pkl" in entries or any(name.startswith("code/") for name in entries):
        raise ModelRefusedError("this is TorchScript, which torch no longer makes: export it with torch.export.export")
    if "data.pkl" in entries:
        raise ModelRefusedError(
            "this is a checkpoint, weights without a model: load it into its model and use torch.export.save"
        )
    raise ModelRefusedError("a zip archive, but not one of torch.export: save the model with torch.export.save")


def _look_through(entries: Mapping[str, bytes], compiled: Sequence[str]) -> None:
    if compiled:
        raise _distrust("it holds machine code (an AOTInductor package)")
    for name, content in entries.items():
        if re.search(r"/(custom|opaque)_obj_\w*$", name):
            raise _distrust(f"it holds a pickled object, {name!r}")
        if re.fullmatch(r"data/(weights|constants)/.*\.pt", name):
            raise _distrust(f"its weights are pickled, {name!r}, as older releases of torch saved them")
        if name.endswith(".json"):
            try:
                _walk(json.loads(content))
            except (ValueError, RecursionError) as error:
                raise ModelRefusedError(f"{name!r} in the archive is damaged ({error}): export it again") from None


def _packed(entries: Mapping[str, bytes]) -> bytes:
    """The entries in an archive of our own, without what is not looked through and not needed."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            if name and not name.startswith("extra/"):
                archive.writestr(f"model/{name}", _needed(name, content))
    return packed.getvalue()


def _needed(name: str, content: bytes) -> bytes:
    """What torch needs of an entry."""
    if name.startswith("data/sample_inputs/"):
        return b""
    if name.startswith("models/"):
        return json.dumps({**json.loads(content), "guards_code": []}).encode()
    return content


def _walk(part: Any) -> None:
    """Look at every value that torch would evaluate, look up or unpickle. Raises ModelRefusedError."""
    if isinstance(part, list):
        for each in part:
            _walk(each)
    elif isinstance(part, dict):
        for key, each in part.items():
            _check_name(key)
            _check(key, each)
            if key not in FREE_TEXT:
                _walk(each)
    elif isinstance(part, str):
        _check_name(part)


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise _distrust(f"the name {name[:80]!r} is more than a name")


def _check(key: str, value: Any) -> None:
    if key in {"target", "as_operator"} and isinstance(value, str):
        _check_function(value)
    elif key == "expr_str":
        _check_expression(str(value))
    elif key in {"in_spec", "out_spec"} and value:
        _check_tree(json.loads(value))
    elif key == "use_pickle" and value:
        raise _distrust("its weights are pickled (they are of a tensor subclass)")
    elif key == "treespec_namedtuple_fields" and value:
        raise _distrust("its inputs or outputs are named tuples")


def _check_function(name: str) -> None:
    custom = re.fullmatch(r"torch\.ops\.(?!higher_order)(\w+)\.(\w+)(\.\w+)?", name)
    if OPERATOR.fullmatch(name) or CONTROL.fullmatch(name) or PYTHON.fullmatch(name):
        if name not in FILES:
            return
    elif custom:
        raise ModelRefusedError(
            f"operator {custom[1]}::{custom[2]} is from a set that is not built in: "
            "export the model with torch's own operators only"
        )
    raise _distrust(f"it calls {name!r}")


def _check_expression(text: str) -> None:
    words = re.findall(r"[A-Za-z_]\w*", text)
    if not EXPRESSION.fullmatch(text) or any(word not in WORDS and not SIZE.fullmatch(word) for word in words):
        raise _distrust(f"the size {text[:80]!r} is more than arithmetic")


def _check_tree(tree: Any) -> None:
    """Inputs and outputs are tuples, lists and dictionaries of tensors."""
    if isinstance(tree, list):
        for each in tree:
            _check_tree(each)
    elif isinstance(tree, dict):
        if tree.get("type") not in TREES:
            raise _distrust(f"its inputs or outputs are of type {tree.get('type')!r}")
        _check_tree(tree.get("children_spec", []))


def _distrust(what: str) -> ModelRefusedError:
    return ModelRefusedError(
        f"{what}, and loading that can run any code: export a plain model, or use --trust if you know who made the file"
    )
