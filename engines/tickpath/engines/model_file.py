"""What people have by mistake in place of a model file, named for what it is, whatever the format should be.

Only starts are looked at, and a zip archive's end: what is wrong within is for the engine of the format to find.
"""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tickpath.engines.engine import ModelRefusedError

FORMATS: Final[Mapping[str, str]] = {
    ".onnx": "ONNX",
    ".pt2": "an exported PyTorch program",
    ".plan": "a TensorRT plan",
    ".ov": "an OpenVINO model",
}
"""The formats by their suffix, as they are called."""

ARCHIVES: Final = (".pt2", ".ov")
"""Those that are zip archives."""

START_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Impostor:
    """What begins like this is `what`, for which `{suffix}` and `{format}` stand for what was expected; unless the
    suffix is among those it is `right_for`."""

    start: bytes
    what: str
    right_for: tuple[str, ...] = ()


IMPOSTORS: Final = (
    Impostor(
        b"version https://git-lfs", "a Git LFS pointer, not the model itself: run `git lfs pull` where it came from"
    ),
    Impostor(b"PK\x03\x04", "a zip archive: unpack it and name the {suffix} file inside", right_for=ARCHIVES),
    Impostor(b"\x1f\x8b", "gzip-compressed: decompress it first"),
    Impostor(b"<", "a web page (HTML or XML), not a model: download the raw file"),
    Impostor(b"\x80\x02", "a Python pickle (PyTorch?), not {format}: export the model from where it was trained"),
    Impostor(b"\x89HDF", "an HDF5 file (Keras?), not {format}: convert it"),
    Impostor(b"{", "JSON, not {format}"),
)


def check_file(path: Path) -> None:
    """Whether the file can be what its suffix says, one of FORMATS. Raises ModelRefusedError."""
    try:
        with path.open("rb") as file:
            check_start(file.read(START_BYTES), path.suffix)
            if path.suffix in ARCHIVES and not zipfile.is_zipfile(file):
                raise ModelRefusedError("a zip archive without its end: the file is truncated, copy it again")
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise ModelRefusedError(f"{path}: no such file") from None
    except OSError as error:
        raise ModelRefusedError(f"{path}: can't be read: {error.strerror}") from None


def check_start(content: bytes, suffix: str) -> None:
    """Whether a file that begins like this can be what the suffix says. Raises ModelRefusedError, which does not name
    the file."""
    if not content:
        raise ModelRefusedError("the file is empty: copy the model again")
    if (what := what_it_is(content, suffix)) is not None:
        raise ModelRefusedError(f"this is {what}")
    if suffix in ARCHIVES and not content.startswith(b"PK\x03\x04"):
        again = "save it with torch.export.save" if suffix == ".pt2" else "compile it again"
        raise ModelRefusedError(f"this is not {FORMATS[suffix]}, which is a zip archive: {again}")


def what_it_is(content: bytes, suffix: str) -> str | None:
    """What stands in place of a model, and what to do about it; None where it may be one."""
    start = content[:START_BYTES].lstrip()
    for impostor in IMPOSTORS:
        if start.startswith(impostor.start) and suffix not in impostor.right_for:
            return impostor.what.format(suffix=suffix, format=FORMATS.get(suffix, "a model"))
    return None
