"""What is measured: servers as child processes, each stopped (SIGSTOP) while another is measured, so that none
disturbs the rest."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tickpath.wire import PROTOCOL_VERSION, FrameEncoder, Hello, Infer, ModelInfo

FLOOR: Final = Path("build/floor")
START_S_MAX: Final = 30


@dataclass(frozen=True)
class Target:
    """One running server and the bytes to send to it. `model` names the row's floor and engine; `kind` what answers."""

    kind: str
    model: str
    address: str
    request: Path
    preamble: Path
    process: subprocess.Popen[str]
    client_cpu: int | None

    def ping(self, samples: int, warmup: int, scratch: Path) -> npt.NDArray[np.uint64]:
        """Round trips, one at a time, from the C client: ns each."""
        out = scratch / "samples.bin"
        command = [str(FLOOR), "ping", self.address, str(out), str(samples), str(warmup)]
        command += [str(self.request), str(self.preamble)]
        with self._awake():
            subprocess.run([*pinned(self.client_cpu), *command], check=True, timeout=60)
        return np.fromfile(out, np.uint64)

    @contextmanager
    def _awake(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGSTOP)

    def rss_bytes(self) -> int:
        """Resident memory of the server."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * 4096

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait(timeout=10)


def pinned(cpu: int | None) -> list[str]:
    """The prefix of a command that runs on one processor, or anywhere."""
    return [] if cpu is None else ["taskset", "-c", str(cpu)]


def write_frames(folder: Path, model: ModelInfo) -> tuple[Path, Path, int]:
    """A seeded request of one row for `model` and the Hello before it. Returns both files and the bytes of a whole
    reply frame."""
    rng = np.random.default_rng(7)
    encoder = FrameEncoder()
    inputs: list[memoryview | None] = [
        memoryview(rng.standard_normal(tensor.shape).astype(tensor.dtype).tobytes()) for tensor in model.inputs
    ]
    request = encoder.frame(Infer(2**40, model.handle, 1, inputs, event_time_ns=1_700_000_000_000_000_000))
    request_file, preamble_file = folder / f"{model.name}.request", folder / "hello"
    request_file.write_bytes(request)
    preamble_file.write_bytes(encoder.frame(Hello(PROTOCOL_VERSION, "bench")))
    reply_bytes = sum(int(np.prod(t.shape)) * np.dtype(t.dtype).itemsize for t in model.outputs)
    # Prefix, tag, id, version, six stamps of nine bytes, and a header for each output: within three bytes of the real
    # reply.
    return request_file, preamble_file, reply_bytes + 4 + 2 + 9 + 2 + 1 + 6 * 9 + 3 * len(model.outputs)


def start_floor(
    model: ModelInfo, frames: tuple[Path, Path, int], cpus: tuple[int | None, int | None], touch_pages: int
) -> Target:
    """The C server that answers with as many bytes as the model's reply."""
    request, preamble, reply_bytes = frames
    command = [*pinned(cpus[0]), str(FLOOR), "serve", "0", str(reply_bytes)]
    if touch_pages:
        command += ["--touch", str(touch_pages)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = _first_line(process)
    process.send_signal(signal.SIGSTOP)
    kind = f"C, touching {touch_pages} pages" if touch_pages else "C floor"
    return Target(kind, model.name, address, request, preamble, process, cpus[1])


def start_tickpath(
    name: str, path: Path, flags: Sequence[str], cpus: tuple[int | None, int | None]
) -> tuple[str, subprocess.Popen[str]]:
    """A real `tickpath serve` on a free port. Returns its port and the process, awake."""
    # Its own flag and not taskset: a server that may use one processor only does not poll before it sleeps.
    pin = [] if cpus[0] is None else ["--cpu", str(cpus[0])]
    command = [sys.executable, "-m", "tickpath.cli", "serve", str(path), "--name", name, "--port", "0", "--json"]
    command += ["--observer-port", "0", *pin, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    ready = json.loads(_first_line(process))
    return ready["address"].rpartition(":")[2], process


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait(START_S_MAX)} before it served")
    return line
