"""A plan and its sidecar on disk.

Written whole: a file appears under its name when all of it is on the disk, or not at all. The two files are renamed one
after the other under a lock on their folder, which readers share, so that nobody sees the plan of one builder with the
sidecar of another. The lock is the kernel's and ends with its process; where a file system has none, a pair that does
not fit is found by its hash.
"""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tickpath.engines.compile.sidecar import Sidecar, SidecarError, decode_sidecar, encode_sidecar
from tickpath.engines.engine import ModelRefusedError


class BadPlanError(ModelRefusedError):
    """A plan is damaged, foreign or not there. The text is one line that names the file."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan that is what its sidecar says, byte for byte."""

    path: Path
    content: bytes
    sidecar: Sidecar


def sidecar_path(plan: Path) -> Path:
    """NAME.plan -> NAME.plan.json"""
    return plan.with_name(plan.name + ".json")


def read_plan(path: Path) -> Plan:
    """The plan, checked against its sidecar before any runtime sees it. Raises BadPlanError."""
    with _locked(path.parent, fcntl.LOCK_SH):
        beside, content = _read(sidecar_path(path), f"the sidecar of {path.name}"), _read(path, "the plan")
    try:
        sidecar = decode_sidecar(beside)
    except SidecarError as error:
        raise BadPlanError(f"{sidecar_path(path)}: the sidecar {error}: compile the model again") from None
    _check_content(path, content, sidecar)
    return Plan(path, content, sidecar)


def _check_content(path: Path, content: bytes, sidecar: Sidecar) -> None:
    if not content:
        raise BadPlanError(f"{path}: the plan is empty: compile the model again")
    if len(content) != sidecar.plan_bytes:
        raise BadPlanError(
            f"{path}: the plan has {len(content)} bytes, its sidecar says {sidecar.plan_bytes}: it is truncated or of "
            "another build; compile the model again"
        )
    if hashlib.sha256(content).hexdigest() != sidecar.plan_sha256:
        raise BadPlanError(
            f"{path}: the plan is not the one that its sidecar describes: it is damaged or of another build; "
            "compile the model again"
        )


def publish(path: Path, content: bytes, sidecar: Sidecar) -> None:
    """Put the plan and its sidecar in the place of what is there. Raises OSError, having changed nothing."""
    with whole_file(path) as plan_name, whole_file(sidecar_path(path)) as sidecar_name:
        _fill(plan_name, content)
        _fill(sidecar_name, encode_sidecar(sidecar))
        with _locked(path.parent, fcntl.LOCK_EX):
            plan_name.replace(path)
            sidecar_name.replace(sidecar_path(path))
            _sync_folder(path.parent)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name in the same folder to write to and then to rename; gone in the end, if it was not renamed."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.fchmod(descriptor, 0o644)  # mkstemp's are the owner's alone, and the server may run as another user
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def write_whole(path: Path, content: bytes) -> None:
    """Put one file in the place of what is there. Raises OSError, having changed nothing."""
    with whole_file(path) as name:
        _fill(name, content)
        name.replace(path)
        _sync_folder(path.parent)


def _fill(name: Path, content: bytes) -> None:
    with name.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise BadPlanError(f"{path}: {what} is not there: compile the model again") from None
    except OSError as error:
        raise BadPlanError(f"{path}: {what} can't be read: {error.strerror}") from None


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # whoever reads or writes there next says why
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """A rename is on the disk when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
