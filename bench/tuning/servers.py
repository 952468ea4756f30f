"""Servers of the variants, each stopped with its children while others are measured, and the clients that ask them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.feeds import Peer
from bench.targets import Target, tickpath_server, write_frames
from bench.tuning.knobs import BURST, Variant
from tickpath.client import Client, Tls
from tickpath.engines.zoo import build
from tickpath.server.ready import Ready
from tickpath.wire import Infer, ModelInfo, Result

Times = npt.NDArray[np.int64]
FIRST_REQUEST: Final = 1
SELF_SIGNED: Final = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"


class NotHereError(Exception):
    """A variant that this machine does not have. The text says why."""


class Server:
    """One that runs, and is asleep (SIGSTOP) but while it is asked."""

    def __init__(self, ready: Ready, zoo: str, folder: Path) -> None:
        self._ready = ready
        self._zoo = zoo
        self._folder = folder
        with self._client("tls" if ready.address.startswith("tls:") else "tcp") as client:
            self._info: ModelInfo = client.model(zoo)
        self._inputs = {
            tensor.name: np.random.default_rng(7).standard_normal((1, *tensor.shape[1:])).astype(tensor.dtype)
            for tensor in self._info.inputs
        }
        self._family = [ready.pid, *_children(ready.pid)]
        self.stop()

    def stop(self) -> None:
        for pid in self._family:
            os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        for pid in reversed(self._family):
            os.kill(pid, signal.SIGCONT)

    def ask(self, client: str, variant: Variant, samples: int) -> Times:
        """Round trips in ns; of a burst, from its first byte sent to each of its answers."""
        self.go_on()
        try:
            if client == "c":
                return self._ask_in_c(variant.cpus[1], samples)
            with _on(variant.cpus[1]):
                return self._ask_in_bursts(samples) if client == "burst" else self._ask_in_python(variant.by, samples)
        finally:
            self.stop()

    def _ask_in_c(self, cpu: int | None, samples: int) -> Times:
        request, preamble = write_frames(self._folder, self._info)
        port = self._ready.address.rpartition(":")[2]
        target = Target("tickpath", self._zoo, port, request, preamble, self._ready.pid, cpu)
        return target.ping(samples, samples // 10, self._folder)

    def _ask_in_python(self, by: str, samples: int) -> Times:
        with self._client(by) as client:
            taken_ns = np.empty(samples + samples // 10, np.int64)
            for number in range(len(taken_ns)):
                start_ns = perf_counter_ns()
                client.infer(self._zoo, self._inputs)
                taken_ns[number] = perf_counter_ns() - start_ns
        return taken_ns[samples // 10 :]

    def _client(self, by: str) -> Client:
        if by == "unix":
            assert self._ready.uds is not None
            return Client(self._ready.uds)
        return Client(self._ready.address, tls=Tls(ca=str(self._folder / "tls.pem")) if by == "tls" else None)

    def _ask_in_bursts(self, samples: int) -> Times:
        peer = Peer(self._ready.address)
        tensors: list[Any] = [memoryview(array.tobytes()) for array in self._inputs.values()]
        requests = [Infer(FIRST_REQUEST + number, self._info.handle, 1, tensors) for number in range(BURST)]
        taken_ns = []
        for number in range(samples // BURST + 1):
            start_ns = perf_counter_ns()
            for request in requests:
                peer.send(request)
            for _ in requests:
                assert isinstance(peer.receive(), Result)
                taken_ns += [perf_counter_ns() - start_ns] if number else []  # the first burst warms it up
        peer.close()
        return np.array(taken_ns)


def start(stack: ExitStack, variant: Variant, zoo: str, folder: Path) -> Server:
    """Its server, which ends with the stack. Raises NotHereError."""
    folder.mkdir()
    _write_model(folder / "models" / zoo, variant, zoo)
    server = dict(variant.server)
    if variant.by == "tls":
        _certify(folder)
        server["tls"] = {"certificate": "tls.pem", "key": "tls.key"}
    if "record" in server:
        server["record"] = {"dir": str(folder / "recording")}
    config = folder / "tickpath.toml"
    config.write_text(_toml(server))
    flags = ["--config", str(config), "--uds", str(folder / "sock")]
    if server.pop("observer_port", None) is False:
        flags.append("--no-observer")
    ready = stack.enter_context(tickpath_server(folder / "models", folder / "log", variant.cpus[0], *flags))
    if variant.after is not None:
        try:
            variant.after(ready.pid)
        except OSError as error:
            raise NotHereError(f"not settable here ({error.strerror})") from None
    running = Server(ready, zoo, folder)
    stack.callback(running.go_on)  # a child that is stopped would not end
    return running


def _write_model(folder: Path, variant: Variant, zoo: str) -> None:
    version = folder / "1"
    version.mkdir(parents=True)
    (folder / "model.toml").write_text(_toml(variant.model))
    if variant.precision is None:
        (version / "model.onnx").write_bytes(build(zoo).SerializeToString())
        return
    source = folder.parent.parent / f"{zoo}.onnx"
    source.write_bytes(build(zoo).SerializeToString())
    command = [sys.executable, "-m", "tickpath.cli", "compile", str(source), "-o", str(version / "model.ov")]
    done = subprocess.run([*command, "--precision", variant.precision], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotHereError(done.stderr.strip().splitlines()[-1])


def _toml(values: Any) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in values.items())


def _value(value: Any) -> str:
    """JSON's scalars and arrays are TOML's too."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def _certify(folder: Path) -> None:
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    out = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.pem")]
    try:
        subprocess.run(["openssl", *SELF_SIGNED.split(), *names, *out], check=True, capture_output=True)
    except OSError:
        raise NotHereError("there is no openssl here to make a certificate") from None


def _children(pid: int) -> list[int]:
    """The observer and its like."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


@contextmanager
def _on(cpu: int | None) -> Iterator[None]:
    """This process on one processor, or anywhere."""
    allowed = os.sched_getaffinity(0)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
