"""Everything here needs the TensorRT-RTX package, and no GPU: `make test-compile` installs it."""

from pathlib import Path

import pytest

from tickpath.engines import ModelRefusedError
from tickpath.engines.tensorrt import TensorRT, find_tensorrt


@pytest.fixture(scope="session", autouse=True)
def rtx() -> TensorRT:
    """The package."""
    try:
        return find_tensorrt("tensorrt-rtx")
    except ModelRefusedError as error:
        pytest.exit(f"make test-compile installs what is needed here: {error}", returncode=1)


@pytest.fixture(autouse=True)
def nothing_half_made(tmp_path: Path) -> object:
    """Whatever a test does to a compile, no part of a file stays."""
    yield
    assert [file for file in tmp_path.rglob("*") if file.name.endswith(".part")] == []
