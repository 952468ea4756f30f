"""Small programs of torch.export, good and bad."""

import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

Forward = Callable[..., Any]


class Module(torch.nn.Module):
    """A function as a module; `state` is a buffer that it may use."""

    def __init__(self, function: Forward, state: torch.Tensor | None = None) -> None:
        super().__init__()
        self._function = function
        self.register_buffer("state", torch.ones(3) if state is None else state)

    state: torch.Tensor

    def forward(self, x: torch.Tensor) -> Any:
        """The function of the module and its input."""
        return self._function(self, x)


def export(
    folder: Path,
    function: Forward,
    example: torch.Tensor | None = None,
    dims: Sequence[Any] = (torch.export.Dim("batch", min=1),),
    state: torch.Tensor | None = None,
) -> Path:
    """`function(module, x)` as a file; `dims` are the first dimensions of x, None where the example's is meant."""
    x = torch.randn(3, 3) if example is None else example
    dynamic = {"x": {axis: dim for axis, dim in enumerate(dims) if dim is not None}}
    program = torch.export.export(Module(function, state).eval(), (x,), dynamic_shapes=dynamic)
    path = folder / "model.pt2"
    torch.export.save(program, path)
    return path


def scaled(module: Module, x: torch.Tensor) -> torch.Tensor:
    """x times the module's buffer."""
    return x * module.state


def rewritten(path: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """The archive with each entry changed, or left out; in place."""
    changed = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(changed, "w") as out:
        for info in archive.infolist():
            content = change(info.filename, archive.read(info))
            if content is not None:
                out.writestr(info.filename, content)
    path.write_bytes(changed.getvalue())
    return path


def replaced(path: Path, entry: str, old: str, new: str) -> Path:
    """The archive with text in the entry of this ending replaced; in place."""

    def change(name: str, content: bytes) -> bytes:
        if not name.endswith(entry):
            return content
        assert old.encode() in content, f"{old!r} is not in {name}"
        return content.replace(old.encode(), new.encode())

    return rewritten(path, change)


def added(path: Path, entry: str, content: bytes) -> Path:
    """The archive with one entry more; in place."""
    with zipfile.ZipFile(path) as archive:
        folder = archive.namelist()[0].partition("/")[0]
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{folder}/{entry}", content)
    return path
