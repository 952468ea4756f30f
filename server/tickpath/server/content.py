"""What a version of a model consists of, by content: that, and not when it was written, decides what is new.

It covers every file of a version's folder (model, weights, sidecar, golden sample) and the settings it is loaded with.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from time import time_ns
from typing import Final

import msgspec

from tickpath.server.config import ModelConfig
from tickpath.server.golden import GOLDEN_FILE
from tickpath.server.repository import MODEL_FILES, is_passed_over

Signature = tuple[tuple[str, int, int, int, int], ...]

# Where a version lies and whether it is live is not part of it.
_APART: Final = ("path", "live")

# A file may change twice within one tick of its file system's clock, which is 4 ms here and two seconds on some.
SETTLED_NS: Final = 2_000_000_000


def content_digest(config: ModelConfig) -> str:
    """The sha256 of a version: equal where the files hold the same and the settings are the same. Reads every file.
    Raises OSError."""
    return _with_settings(_digest(content_files(config)), config)


class ContentDigests:
    """`content_digest` for whoever asks again and again: a version is read anew only when its files' sizes, times or
    inodes have changed."""

    def __init__(self, clock_ns: Callable[[], int] = time_ns) -> None:
        self._clock_ns = clock_ns
        self._seen: dict[str, tuple[Signature, bytes]] = {}

    def of(self, config: ModelConfig) -> str:
        """The version's digest. Raises OSError."""
        signature = stat_signature(config)
        seen = self._seen.get(config.path)
        if seen is None or seen[0] != signature:
            seen = (signature, _digest(content_files(config)))
            if _settled(signature, self._clock_ns()):
                self._seen[config.path] = seen
        return _with_settings(seen[1], config)

    def remembers(self, config: ModelConfig) -> bool:
        """Whether the next digest can do without reading, if nothing changes."""
        return config.path in self._seen

    def forget(self, config: ModelConfig) -> None:
        """The version is gone."""
        self._seen.pop(config.path, None)


def content_files(config: ModelConfig) -> dict[str, Path]:
    """The files of a version, by their names in its folder. A model that lies in no repository has those whose names
    begin with its own, and its golden sample. Raises OSError."""
    path = Path(config.path)
    if path.name in MODEL_FILES and path.parent.name == config.version:
        return _files_under(path.parent)
    names = {config.golden or GOLDEN_FILE}
    beside = [file for file in path.parent.iterdir() if file.name.startswith(path.name) or file.name in names]
    return {file.name: file for file in beside if file.is_file() and not is_passed_over(file.name)}


def stat_signature(config: ModelConfig) -> Signature:
    """What tells cheaply that a version's files may have changed: name, size, inode, and the times of the last change.
    Raises OSError."""
    marks = []
    for name, file in sorted(content_files(config).items()):
        found = file.stat()
        marks.append((name, found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns))
    return tuple(marks)


def _files_under(root: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for folder, folders, names in os.walk(root, onerror=_raise):
        folders[:] = [name for name in folders if not is_passed_over(name)]
        paths = [Path(folder, name) for name in names if not is_passed_over(name)]
        files |= {path.relative_to(root).as_posix(): path for path in paths if path.is_file()}
    return files


def _raise(error: OSError) -> None:
    raise error


def _digest(files: dict[str, Path]) -> bytes:
    whole = hashlib.sha256()
    for name, path in sorted(files.items()):
        with path.open("rb") as file:
            whole.update(os.fsencode(name) + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return whole.digest()


def _with_settings(files: bytes, config: ModelConfig) -> str:
    settings = {key: value for key, value in msgspec.structs.asdict(config).items() if key not in _APART}
    return hashlib.sha256(files + msgspec.json.encode(settings, order="sorted")).hexdigest()


def _settled(signature: Signature, now_ns: int) -> bool:
    return all(max(mtime_ns, ctime_ns) + SETTLED_NS < now_ns for *_, mtime_ns, ctime_ns in signature)
