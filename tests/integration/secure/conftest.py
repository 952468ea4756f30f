"""A server that asks who comes, for all tests that leave it as it was."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.secured import Secured, secured
from tests.serving import write_zoo


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One for all that leave it as it was."""
    folder = tmp_path_factory.mktemp("secure")
    models: list[Any] = [*write_zoo(folder, "mlp", "deeplob")]
    models.append({"path": str(folder / "mlp.onnx"), "name": "threaded", "executor": "thread"})
    with secured(folder, models, observer_port=0) as server:
        yield server
