"""The rules that span files: who imports whom, what stays pure, how large things grow, what the text may not say."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
COMPONENTS: Final = ("server", "engines", "graphs", "loadtest", "clients/python")
SOURCE: Final = sorted(file for folder in COMPONENTS for file in (ROOT / folder).rglob("*.py"))
CODE: Final = SOURCE + sorted(file for folder in ("tests", "bench") for file in (ROOT / folder).rglob("*.py"))
TEXT_SUFFIXES: Final = {"", ".c", ".cpp", ".h", ".hpp", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
TEXT_FOLDERS: Final = (".ci", "bench", "clients", "deploy", "docs", "engines", "graphs", "loadtest", "server", "tests")

FILE_LINES_MAX: Final = 400
FUNCTION_LINES_MAX: Final = 70
PURE: Final = (
    "tickpath.wire",
    "tickpath.server.admission",
    "tickpath.server.identity",
    "tickpath.server.quota",
    "tickpath.server.rights",
    "tickpath.server.scheduling",
    "tickpath.server.dispatch",
    "tickpath.server.compute_time",
    "tickpath.graphs.buckets",
    "tickpath.client.pool.servers",
    "tickpath.client.pool.hedging",
    "tickpath.client.pool.course",
)
IMPURE: Final = {"asyncio", "socket", "time", "threading", "select", "selectors", "datetime", "uvloop"}
UNPICKLERS: Final = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
# Who alone may import a runtime: a folder of ours for each package.
HOMES: Final = {
    "aiohttp": "server/tickpath/door",
    "cuda": "graphs/tickpath/graphs/cuda",
    "grpc": "server/tickpath/door",
    "onnxruntime": "engines",
    "opentelemetry": "server/tickpath/observe/tracing",
    "ray": "server/tickpath/score",
    "requests": "server/tickpath/observe/tracing",
    "onnx": "engines",
    "uvloop": "server",
    "tensorrt": "engines",
    "torch": "engines",
}


def files_of(module: str) -> list[Path]:
    """The files of a module or package of ours, none if it does not exist."""
    inner = Path(*module.split("."))
    return [file for file in SOURCE if inner in (file.relative_to(root_of(file)).with_suffix(""), *inner_folders(file))]


def root_of(file: Path) -> Path:
    """The component folder a source file lies in."""
    return next(ROOT / folder for folder in COMPONENTS if file.is_relative_to(ROOT / folder))


def inner_folders(file: Path) -> tuple[Path, ...]:
    """The packages a source file lies in, as paths from its component's folder."""
    return tuple(file.relative_to(root_of(file)).parents)


@cache
def tree_of(file: Path) -> ast.Module:
    """A file's syntax."""
    return ast.parse(file.read_text("utf-8"), str(file))


def imports_of(file: Path) -> set[str]:
    """The full names of all modules that a file names in an import, at its top or within a function."""
    names = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def top_names(file: Path) -> set[str]:
    """The same, packages only."""
    return {name.split(".")[0] for name in imports_of(file)}


def relative(file: Path) -> str:
    """For people."""
    return str(file.relative_to(ROOT))


def texts() -> Iterator[tuple[Path, str]]:
    """Every text that is ours, this file apart, which must name what it forbids."""
    files = [file for file in ROOT.iterdir() if file.is_file() and file.name != ".git"]
    files += [file for folder in TEXT_FOLDERS for file in (ROOT / folder).rglob("*") if file.is_file()]
    for file in sorted(files):
        if file.suffix in TEXT_SUFFIXES and file != Path(__file__) and "__pycache__" not in file.parts:
            yield file, file.read_text("utf-8")


def loaded_by(statement: str) -> set[str]:
    """The packages that a fresh interpreter loads for a statement, without those it starts with."""
    program = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return {name.split(".")[0] for name in done.stdout.split()}


def third_party(names: set[str]) -> set[str]:
    """Those that are neither Python's nor ours."""
    return {name for name in names if name not in sys.stdlib_module_names and name != "tickpath"}


def test_import_directions() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache", "--no-logo"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", [module for module in PURE if files_of(module) or module == "tickpath.wire"])
def test_pure_modules_know_no_loop_no_socket_and_no_clock(module: str) -> None:
    files = files_of(module)
    assert files, f"{module} is gone"
    assert {relative(file): found for file in files if (found := top_names(file) & IMPURE)} == {}


def test_wire_needs_msgspec_alone() -> None:
    loaded = loaded_by("import tickpath.wire")
    assert third_party(loaded) == third_party(loaded_by("import msgspec"))
    assert loaded & {"asyncio", "socket", "selectors"} == set()


def test_the_client_needs_msgspec_and_numpy_alone() -> None:
    assert third_party(loaded_by("import tickpath.client")) <= third_party(loaded_by("import msgspec, numpy"))


@pytest.mark.parametrize(("package", "home"), HOMES.items(), ids=HOMES)
def test_runtimes_are_imported_in_one_place(package: str, home: str) -> None:
    strays = [relative(file) for file in SOURCE if package in top_names(file) and not file.is_relative_to(ROOT / home)]
    assert strays == [], f"only {home}/ may import {package}"


@pytest.mark.parametrize("file", SOURCE, ids=relative)
def test_nothing_is_unpickled(file: Path) -> None:
    """Whoever wrote what is unpickled runs code here. What must be had of torch's own files is looked through first
    (engines/pt2_file.py)."""
    assert top_names(file) & UNPICKLERS == set()
    for node in ast.walk(tree_of(file)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        called = ast.unparse(node.func)
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if called in ("np.load", "numpy.load", "np.lib.format.read_array"):
            assert given.get("allow_pickle") == "False", f"line {node.lineno}: {called} without allow_pickle=False"
        if called == "torch.load":
            assert given.get("weights_only") == "True", f"line {node.lineno}: torch.load without weights_only=True"


def test_components_are_portions_of_one_namespace() -> None:
    for folder in COMPONENTS:
        assert (ROOT / folder / "tickpath").is_dir()
        assert not (ROOT / folder / "tickpath" / "__init__.py").exists(), "it would hide the other components"
        assert not (ROOT / folder / "__init__.py").exists()


@pytest.mark.parametrize("file", CODE, ids=relative)
def test_files_and_functions_stay_small(file: Path) -> None:
    assert len(file.read_text("utf-8").splitlines()) <= FILE_LINES_MAX
    functions = [node for node in ast.walk(tree_of(file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: count for name, count in lines.items() if count > FUNCTION_LINES_MAX} == {}


@pytest.mark.parametrize("file", SOURCE, ids=relative)
def test_what_is_public_is_explained(file: Path) -> None:
    """Modules, and the classes and functions at their top. Methods that say it in their name need no more."""
    named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    public = [node for node in tree_of(file).body if isinstance(node, named) and not node.name.startswith("_")]
    assert [node.name for node in public if not ast.get_docstring(node)] == []
    assert ast.get_docstring(tree_of(file)) or not tree_of(file).body


@pytest.mark.parametrize("file", SOURCE, ids=relative)
def test_only_the_command_prints(file: Path) -> None:
    if relative(file).startswith(("server/tickpath/cli.py", "server/tickpath/cli/")):
        return
    calls = [node.func for node in ast.walk(tree_of(file)) if isinstance(node, ast.Call)]
    assert [call.lineno for call in calls if isinstance(call, ast.Name) and call.id == "print"] == []


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"\b(TODO|FIXME|XXX)\b", id="unfinished"),
        pytest.param(r"(?<![\w.])/(work|home|root|Users|mnt)/\w", id="machine-path"),
        pytest.param(r"pypi\.org|pythonhosted|/simple/|index-url|file:///", id="package-index"),
        pytest.param(r"setrecursionlimit\(|stack_size\(", id="stack"),
    ],
)
def test_no_text_of_ours_says(pattern: str) -> None:
    said = [f"{relative(file)}: {found.group()}" for file, text in texts() for found in re.finditer(pattern, text)]
    assert said == []


def test_every_extra_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needs = [*project["dependencies"], *(need for extra in project["optional-dependencies"].values() for need in extra)]
    pins = re.findall(r"^([\w.-]+)==\S+$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    wanted = {canonical(re.split(r"[\s\[<>=!~;@]", need)[0]) for need in needs}
    assert wanted - {canonical(pin) for pin in pins} == set()


def canonical(package: str) -> str:
    """A package's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", package).lower()
