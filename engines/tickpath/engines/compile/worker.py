"""A TensorRT build in a process of its own: it can be ended at any moment, though a single step of it may take minutes
and ask nobody; it can end by a signal, and the caller lives; and its memory is given back.

    python -m tickpath.engines.compile.worker    a BuildJob on stdin; events on stdout, one a line; the plan in a file

If the caller goes away, the next event finds nobody to read it, and the build ends.
"""

import os
import sys
from pathlib import Path
from typing import BinaryIO, TypeAlias

import msgspec

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.tensorrt import BuildSettings, Built, build, find_tensorrt


class BuildJob(msgspec.Struct, frozen=True):
    """What to build, and the files to read it from and write it to. `timing_cache` is that file's content."""

    runtime: str
    model_path: str
    plan_path: str
    settings: BuildSettings
    timing_cache: bytes = b""


class Started(msgspec.Struct, frozen=True, tag=True):
    """A phase began."""

    phase: str
    parent: str | None
    steps: int


class Stepped(msgspec.Struct, frozen=True, tag=True):
    """A step of a phase is done."""

    phase: str
    step: int


class Finished(msgspec.Struct, frozen=True, tag=True):
    """A phase is over."""

    phase: str


class Done(msgspec.Struct, frozen=True, tag=True):
    """The plan is in its file."""

    timing_cache: bytes
    notes: tuple[str, ...]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """There will be no plan."""

    text: str


Event: TypeAlias = Started | Stepped | Finished | Done | Refused


class Events:
    """A Watcher that writes what it is told for the caller."""

    def __init__(self, channel: BinaryIO) -> None:
        self._channel = channel

    def started(self, phase: str, parent: str | None, steps: int) -> None:
        """A phase began."""
        self.send(Started(phase, parent, steps))

    def stepped(self, phase: str, step: int) -> bool:
        """A step is done; it always goes on, as the caller ends the process."""
        self.send(Stepped(phase, step))
        return True

    def finished(self, phase: str) -> None:
        """A phase is over."""
        self.send(Finished(phase))

    def send(self, event: Event) -> None:
        """Raises BrokenPipeError where the caller is gone."""
        self._channel.write(msgspec.json.encode(event) + b"\n")
        self._channel.flush()


def main() -> None:
    """Build what stdin says."""
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries print, and events must stay alone
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=BuildJob)
    events = Events(channel)
    try:
        built = _build(job, events)
        Path(job.plan_path).write_bytes(built.plan)
    except ModelRefusedError as error:
        events.send(Refused(str(error)))
    except MemoryError:
        events.send(Refused("no memory left: give fewer or smaller buckets"))
    except OSError as error:
        events.send(Refused(f"the plan can't be written: {error.strerror}"))
    else:
        events.send(Done(built.timing_cache, built.notes))


def _build(job: BuildJob, events: Events) -> Built:
    model = Path(job.model_path).read_bytes()
    return build(find_tensorrt(job.runtime), model, job.settings, events, job.timing_cache)


if __name__ == "__main__":
    main()
