"""What is recorded, and how much of it is kept."""

from typing import Annotated, Literal

import msgspec

from tickpath.server.config_types import Place

# From one page to more than any disk has.
Bytes = Annotated[int, msgspec.Meta(ge=4096, lt=2**50)]
MIB = 1024 * 1024


class RecordConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A recording: docs/RECORDING.md."""

    # The folder of its segments; made where it is not there, for this user alone.
    dir: Place
    # Memory between the core and the recorder. 64 MiB hold 0.4 s of the most that one core takes in (10,000 DeepLOB
    # windows of 16 kB a second): longer than a disk holds up a write that it will do at all.
    ring_bytes: Annotated[int, msgspec.Meta(ge=65536, lt=2**36)] = 64 * MIB
    # A segment is closed when it is so long, or so old: it is what is removed, copied and read as one, and at most this
    # is read again after a crash.
    segment_bytes: Bytes = 64 * MIB
    segment_s: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 900.0
    # All segments together: a trading day of 500 requests a second of 280 bytes, with their answers.
    bytes_max: Bytes = 8192 * MIB
    # What then happens. drop_oldest: its oldest segment is removed. stop: nothing more is recorded until somebody has
    # moved some away.
    when_full: Literal["drop_oldest", "stop"] = "drop_oldest"


def check_record(config: RecordConfig) -> str:
    """What is wrong with it; empty where nothing is."""
    if config.ring_bytes % 8:
        return f"record: ring_bytes must be a multiple of 8, {config.ring_bytes} came"
    least = config.segment_bytes + config.ring_bytes
    if config.bytes_max < least:
        return (
            f"record: bytes_max must hold a segment and what waits in memory, segment_bytes + ring_bytes = {least}; "
            f"{config.bytes_max} came"
        )
    return ""
