"""A core's records, and an observer of them."""

from collections.abc import Iterator

import pytest
from tests.integration.observer.observing import MODELS, Observing, observing

from tickpath.observe.records import RecordWriter


@pytest.fixture
def writer() -> Iterator[RecordWriter]:
    writer = RecordWriter()
    writer.describe(MODELS)
    yield writer
    writer.close()


@pytest.fixture
def observer(writer: RecordWriter) -> Iterator[Observing]:
    with observing(writer) as observer:
        yield observer
