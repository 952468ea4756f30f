"""Every test here needs a GPU; without one there is nothing to skip to, so the run ends."""

import pytest

from tickpath.engines import EngineFailedError
from tickpath.graphs.cuda import Device


@pytest.fixture(scope="session", autouse=True)
def gpu() -> str:
    """The device's name."""
    try:
        device = Device()
    except EngineFailedError as error:
        pytest.exit(f"make test-gpu needs a machine with an NVIDIA GPU: {error}", returncode=1)
    device.close()
    return device.name
