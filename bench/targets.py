"""What is measured: servers as child processes, each stopped (SIGSTOP) while another is measured, so that none
disturbs the rest."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tickpath.console import floor
from tickpath.console.server_process import server_process
from tickpath.server.ready import Ready
from tickpath.wire import PROTOCOL_VERSION, Hello, Infer, ModelInfo, encode_frame

FLOOR: Final = Path("build/floor")
# The C++ client, asked for its samples.
LATENCY: Final = Path("build/latency")
# Asks at given times, whatever becomes of what it asks.
ASKER: Final = Path("build/asker")
# Of the slowest model in the zoo on a slow machine; it only ends what hangs.
PING_S_MAX: Final = 600


@dataclass(frozen=True)
class Target:
    """One running server and the bytes to send to it. `model` names the row's floor and engine; `kind` what answers.
    `cpp_flags`: asked by the C++ client with these flags; None: by the C client."""

    kind: str
    model: str
    address: str
    request: Path
    preamble: Path
    pid: int
    client_cpu: int | None
    cpp_flags: tuple[str, ...] | None = None

    def ping(self, samples: int, warmup: int, scratch: Path) -> npt.NDArray[np.int64]:
        """Round trips, one at a time: ns each."""
        out = scratch / "samples.bin"
        if self.cpp_flags is None:
            command = c_ping(self.address, out, samples, warmup, self.request, self.preamble)
        else:
            command = cpp_ping(self.address, self.model, out, samples, warmup, *self.cpp_flags)
        with self._awake():
            subprocess.run(
                [*pinned(self.client_cpu), *command], check=True, timeout=PING_S_MAX, stdout=subprocess.DEVNULL
            )
        return np.fromfile(out, np.uint64).astype(np.int64)

    @contextmanager
    def _awake(self) -> Iterator[None]:
        os.kill(self.pid, signal.SIGCONT)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGSTOP)

    def rss_bytes(self) -> int:
        """Resident memory of the server."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def c_ping(port: str, out: Path, samples: int, warmup: int, request: Path, preamble: Path) -> list[str]:
    """The command by which the C client asks."""
    return [str(FLOOR), "ping", port, str(out), str(samples), str(warmup), str(request), str(preamble)]


def cpp_ping(port: str, model: str, out: Path, samples: int, warmup: int, *flags: str) -> list[str]:
    """The command by which the C++ client asks."""
    counts = ["--count", str(samples), "--warmup", str(warmup), "--samples", str(out)]
    return [str(LATENCY), f"127.0.0.1:{port}", model, *counts, *flags]


def pinned(cpu: int | None) -> list[str]:
    """The prefix of a command that runs on one processor, or anywhere."""
    return [] if cpu is None else ["taskset", "-c", str(cpu)]


def write_frames(folder: Path, model: ModelInfo) -> tuple[Path, Path]:
    """A seeded request of one row for `model`, whose reply is as long as `floor.reply_frame`, and the Hello before
    it."""
    rng = np.random.default_rng(7)
    inputs: list[memoryview | None] = [
        memoryview(rng.standard_normal(tensor.shape).astype(tensor.dtype).tobytes()) for tensor in model.inputs
    ]
    request = encode_frame(Infer(floor.ID, model.handle, 1, inputs, event_time_ns=1_700_000_000_000_000_000))
    request_file, preamble_file = folder / f"{model.name}.request", folder / "hello"
    request_file.write_bytes(request)
    preamble_file.write_bytes(encode_frame(Hello(PROTOCOL_VERSION, "bench")))
    return request_file, preamble_file


@contextmanager
def floor_server(model: ModelInfo, cpu: int | None, touch_pages: int) -> Iterator[tuple[str, int]]:
    """The C server that answers with as many bytes as the model's reply: its port and process id."""
    command = [*pinned(cpu), str(FLOOR), "serve", "0", str(len(floor.reply_frame(model)))]
    if touch_pages:
        command += ["--touch", str(touch_pages)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.kill()


def tickpath_server(model: Path, log: Path, cpu: int | None, *flags: str) -> AbstractContextManager[Ready]:
    """A real `tickpath serve`, pinned by its own flag and not by taskset: a server that may use one processor only does
    not poll before it sleeps."""
    return server_process(model, log, *([] if cpu is None else ["--cpu", str(cpu)]), *flags)
