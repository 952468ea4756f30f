"""Where the source of a compiled model stands beside it. Imports nothing that runs or compiles models."""

from pathlib import Path
from typing import Final

SUFFIXES: Final = (".onnx", ".pt2")
"""What can be compiled."""

# A folder of the repository holds one model.*, and under this name what it was made of.
VERSION_STEM: Final = "model"
SOURCE_STEM: Final = "source"


def source_beside(path: Path) -> Path | None:
    """What a compiled file was made of, where that stands beside it: as source.*, or under the name of a file that is
    compiled for sure."""
    stems = (SOURCE_STEM,) if path.suffix in SUFFIXES else (SOURCE_STEM, path.stem)
    candidates = [path.with_name(stem + suffix) for stem in stems for suffix in SUFFIXES]
    return next((each for each in candidates if each != path and each.is_file()), None)
