"""What the tests of real models share."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Lines of a table that is the module's output: shown when all of them are there, whatever pytest captures."""
    lines: list[str] = []
    yield lines
    plugins = request.config.pluginmanager
    reporter = plugins.getplugin("terminalreporter")
    with plugins.getplugin("capturemanager").global_and_fixture_disabled():
        reporter.ensure_newline()
        reporter.section(request.path.stem.removeprefix("test_").replace("_", " "), sep="-")
        for line in sorted(lines):
            reporter.write_line(line)
