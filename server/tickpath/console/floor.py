"""The C floor: a ping-pong over loopback, of the same byte counts at the same rate, by the program in
bench/floor.c."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tickpath.console.errors import ConsoleError
from tickpath.console.tensors import spec_of
from tickpath.loadtest.stages import NANOSECONDS
from tickpath.wire import FrameEncoder, Infer, ModelInfo, Result

# Two seconds show where the floor is; ten round trips are needed to speak of one at all.
FLOOR_S = 2.0
COUNT_MIN, COUNT_MAX = 10, 10_000
# Beyond what the schedule takes.
PATIENCE_S = 30.0

# Ids and stamps as large as those of a live server, so that they take as many bytes.
ID = 10_000
STAMP_NS = 1 << 50


def measure(binary: Path, model: ModelInfo, rate_hz: float, folder: Path) -> NANOSECONDS:
    """Round trips in nanoseconds, int64[count], of one-row requests and replies of this model. Raises ConsoleError."""
    count = min(max(round(rate_hz * FLOOR_S), COUNT_MIN), COUNT_MAX)
    warmup = count // 10
    request, samples = folder / "request.frame", folder / "floor.samples"
    request.write_bytes(request_frame(model))
    with _floor_server(binary, len(reply_frame(model))) as port:
        ping = [str(binary), "ping", port, str(samples), str(count), str(warmup), str(request), "--rate", str(rate_hz)]
        ping.append("--spin")  # as our sender does
        _run(ping, PATIENCE_S + (count + warmup) / rate_hz)
    return np.fromfile(samples, np.uint64).astype(np.int64)


def request_frame(model: ModelInfo) -> bytes:
    """What a client sends for one row."""
    inputs: list[memoryview | None] = [memoryview(bytes(spec_of(tensor).bytes_at(1))) for tensor in model.inputs]
    return FrameEncoder().frame(Infer(ID, model.handle, 1, inputs))


def reply_frame(model: ModelInfo) -> bytes:
    """What a server answers for one row."""
    outputs = [memoryview(bytes(spec_of(tensor).bytes_at(1))) for tensor in model.outputs]
    stamps = (STAMP_NS, STAMP_NS, STAMP_NS, STAMP_NS, STAMP_NS, STAMP_NS)
    return FrameEncoder().frame(Result(ID, model.version, outputs, stamps))


@contextmanager
def _floor_server(binary: Path, reply_bytes: int) -> Iterator[str]:
    command = [str(binary), "serve", "0", str(reply_bytes)]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
    except OSError as error:
        raise ConsoleError(f"{binary}: {error.strerror}; build it with `make build/floor`") from None
    with process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port.isdigit():
                raise ConsoleError(f"{binary} did not say its port; build it anew with `make build/floor`")
            yield port
        finally:
            process.kill()


def _run(command: list[str], seconds_max: float) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=seconds_max, process_group=0)
    except subprocess.CalledProcessError as error:
        raise ConsoleError(f"the C floor failed: {error.stderr.decode(errors='replace').strip()}") from None
    except subprocess.TimeoutExpired:
        raise ConsoleError(f"the C floor took more than {seconds_max:.0f} s: is the machine overloaded?") from None
