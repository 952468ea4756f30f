"""The C floor: a blocking ping-pong of the same byte counts over loopback, by the program in bench/floor.c."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tickpath.console.errors import ConsoleError
from tickpath.console.tensors import spec_of
from tickpath.loadtest.stages import NANOSECONDS
from tickpath.wire import FrameEncoder, Infer, ModelInfo, Result

COUNT = 10_000
WARMUP = 1_000
# 11,000 round trips take well under a second on an idle machine.
PING_S = 60.0

# Ids and stamps as large as those of a live server, so that they take as many bytes.
ID = 10_000
STAMP_NS = 1 << 50


def measure(binary: Path, model: ModelInfo, folder: Path) -> NANOSECONDS:
    """Round trips in nanoseconds, int64[COUNT], of one-row requests and replies of this model. Raises ConsoleError."""
    request, samples = folder / "request.frame", folder / "floor.samples"
    request.write_bytes(request_frame(model))
    with _floor_server(binary, len(reply_frame(model))) as port:
        _run([str(binary), "ping", port, str(samples), str(COUNT), str(WARMUP), str(request)])
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


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=PING_S, process_group=0)
    except subprocess.CalledProcessError as error:
        raise ConsoleError(f"the C floor failed: {error.stderr.decode(errors='replace').strip()}") from None
    except subprocess.TimeoutExpired:
        raise ConsoleError(f"the C floor took more than {PING_S:.0f} s: is the machine overloaded?") from None
