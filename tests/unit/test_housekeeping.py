"""What the core does beside requests, on a real loop."""

import asyncio
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

from tickpath.observe.reader import RecordReader
from tickpath.observe.records import GlobalCell, RecordWriter, VersionCell, version_base
from tickpath.server import housekeeping
from tickpath.server.housekeeping import Housekeeping
from tickpath.server.sd_notify import ServiceManager


@dataclass
class Queue:
    """As much of an executor as is looked at."""

    waiting: int = 0

    def waiting_count(self) -> int:
        return self.waiting


@dataclass
class Model:
    """As much of a served model."""

    place: int
    executor: Queue = field(default_factory=Queue)


@dataclass
class Served:
    """What is kept house for."""

    versions: list[Any]
    is_quiet: bool = False


def keeping_house(body: Callable[[Housekeeping, RecordWriter, list[Any]], Any]) -> None:
    """Run `body` on a loop, and leave the collector as it was."""

    async def main() -> None:
        records = RecordWriter()
        models: list[Any] = [Model(0), Model(1)]
        house = Housekeeping(asyncio.get_running_loop(), records, Served(models), ServiceManager())
        try:
            await body(house, records, models)
        finally:
            house.stop()
            records.close()

    uvloop.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_the_collector_is_off_and_all_there_is_is_frozen_while_serving() -> None:
    async def body(house: Housekeeping, _records: RecordWriter, _models: list[Any]) -> None:
        frozen_before = gc.get_freeze_count()
        house.start()
        assert not gc.isenabled()
        assert gc.get_freeze_count() > frozen_before
        house.stop()
        assert gc.isenabled()
        assert gc.get_freeze_count() == 0

    keeping_house(body)


def test_queues_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "PERIOD_S", 0.001)

    async def body(house: Housekeeping, records: RecordWriter, models: list[Any]) -> None:
        reader = RecordReader(records.fd)
        models[1].executor.waiting = 17
        house.start()
        await until(lambda: reader.totals()[version_base(1) + VersionCell.QUEUE_DEPTH] == 17)
        models[1].executor.waiting = 0
        await until(lambda: reader.totals()[version_base(1) + VersionCell.QUEUE_DEPTH] == 0)

    keeping_house(body)


def test_cycles_are_collected_though_the_collector_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "PERIOD_S", 0.001)

    class Cycle:
        """Holds itself, as a closed connection's objects may."""

        alive = 0

        def __init__(self) -> None:
            self.itself = self
            Cycle.alive += 1

        def __del__(self) -> None:
            Cycle.alive -= 1

    async def body(house: Housekeeping, records: RecordWriter, _models: list[Any]) -> None:
        reader = RecordReader(records.fd)
        house.start()
        for _ in range(housekeeping.YOUNG_OBJECTS_MAX + 1):
            Cycle()
        assert Cycle.alive > housekeeping.YOUNG_OBJECTS_MAX
        await until(lambda: Cycle.alive == 0)
        await until(lambda: reader.totals()[GlobalCell.GC_PAUSE_NS] > 0)

    keeping_house(body)


def test_lag_is_what_the_loop_was_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "PERIOD_S", 0.001)
    monkeypatch.setattr(housekeeping, "PERIOD_NS", 1_000_000)

    class Noting(RecordWriter):
        """Notes what it is told."""

        def __init__(self) -> None:
            super().__init__()
            self.lags_ns: list[int] = []

        def set_cell(self, cell: GlobalCell, value: int) -> None:
            if cell is GlobalCell.LOOP_LAG_NS:
                self.lags_ns.append(value)

    async def body(_house: Housekeeping, _records: RecordWriter, models: list[Any]) -> None:
        records = Noting()
        house = Housekeeping(asyncio.get_running_loop(), records, Served(models), ServiceManager())
        house.start()
        time.sleep(0.05)  # the loop is blocked; the heartbeat was due after one of these 50 ms
        await until(lambda: len(records.lags_ns) > 0)
        house.stop()
        records.close()
        assert records.lags_ns[0] >= 49_000_000
        assert min(records.lags_ns) == records.lags_ns[0]  # seen until the window is over, whatever comes after

    keeping_house(body)
