"""Versions of a model that scales which can't take over from a good one, each for a reason of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from tests.repositories import add_version, killer, renamed, scale

from tickpath.server.golden import GOLDEN_FILE

SETTINGS: Final = "max_change = 10\n"
"""The model.toml that some of them fail by: good versions differ by less."""

# Natural order has letters behind digits: the newest of all.
FAILING_VERSION: Final = "failing"

FAILING: Final[Mapping[str, str]] = {
    "cut at 25 %": "the file is truncated",
    "cut at 50 %": "the file is truncated",
    "cut at 99 %": "the file is truncated",
    "an LFS pointer": "a Git LFS pointer",
    "another input": "max_change can't be judged",
    "another answer": "answers otherwise than max_change = 10 allows",
    "weights of NaN": "its answers are not right by golden.npz",
    "a killer of its runtime": "the runtime died with signal 6",
}
"""What each is, and what its refusal says."""


def add_failing(repository: Path, name: str, how: str) -> None:
    """It stands there whole, as the newest version."""
    folder = add_version(repository, name, f"{FAILING_VERSION}.part", _content(how))
    if how == "weights of NaN":
        np.savez(folder / GOLDEN_FILE, x=np.ones((1, 3), np.float32), y=np.ones((1, 3), np.float32))
    folder.rename(folder.with_name(FAILING_VERSION))


def _content(how: str) -> bytes | onnx.ModelProto:
    if how.startswith("cut at "):
        whole: bytes = scale(1).SerializeToString()
        return whole[: len(whole) * int(how.split()[2]) // 100]
    contents: dict[str, bytes | onnx.ModelProto] = {
        "an LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "another input": renamed(1),
        "another answer": scale(1e6),
        "weights of NaN": scale(np.nan),
        "a killer of its runtime": killer(),
    }
    return contents[how]
