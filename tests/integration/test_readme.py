"""What README.md promises: its examples run, and the metrics it names are there."""

import ast
import asyncio
import inspect
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.serving import RunningServer, serve, write_zoo

README: Final = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
PYTHON: Final = re.compile(r"^```python\n(.+?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("readme")
    with serve(folder, write_zoo(folder, "mlp"), observer_port=0) as server:
        yield server


def test_the_python_examples_run(server: RunningServer) -> None:
    names: dict[str, Any] = {}
    examples = PYTHON.findall(README)
    for example in examples:
        text = example.replace("127.0.0.1:7070", server.address)
        result = eval(compile(text, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.iscoroutine(result):
            asyncio.run(result)
        assert names.pop("prediction").outputs["y"].shape == (1, 3)
    assert len(examples) == 3


def test_the_metrics_are_there(server: RunningServer) -> None:
    with urllib.request.urlopen(f"{server.ready.observer}/metrics", timeout=10) as response:
        page = response.read().decode()
    named = set(re.findall(r"tickpath_\w+", README))
    assert len(named) == 2
    assert {name for name in named if f"# TYPE {name} " not in page} == set()
