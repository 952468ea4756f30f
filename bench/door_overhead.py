"""What a request costs by the Open Inference Protocol's door, beside the native client on the same model, in one run.

    python -m bench.door_overhead [ROUND_TRIPS] [TRITONSERVER]

One request at a time, 64 floats in and 3 out (the zoo's mlp). The runs alternate, so that a busy machine disturbs all
alike. The door's rows are what tritonclient sees, its own work included; `live` is the same client asking the door for
nothing that the core does. TRITONSERVER, Triton's own program, is asked that too where it is given, without a model:
what the protocol costs where its server is written in C++. It comes with nvidia-pytriton, needs no GPU, and stands in
build/triton/pytriton/tritonserver/bin after

    .venv/bin/pip install --no-deps --target build/triton nvidia-pytriton==0.7.0
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import tritonclient.grpc
import tritonclient.http

from tickpath.client import Client
from tickpath.loadtest.latency import summarise

ROUNDS: Final = 7
X: Final = np.zeros((1, 64), np.float32)


@contextmanager
def served(folder: Path) -> Iterator[dict[str, Any]]:
    """A server of mlp with its door: where both are."""
    command = [sys.executable, "-m", "tickpath.cli"]
    subprocess.run([*command, "zoo", "mlp", str(folder / "mlp.onnx")], check=True, capture_output=True)
    command += ["serve", str(folder / "mlp.onnx"), "--port", "0", "--uds", str(folder / "s"), "--no-observer", "--json"]
    with subprocess.Popen(
        [*command, "--oip", "0", "--oip-grpc", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())
        server.terminate()


@contextmanager
def triton(program: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Triton's server without a model: its addresses for REST and gRPC."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    command = [program, "--model-repository", str(folder), "--model-control-mode", "explicit", "--allow-metrics", "0"]
    for side, address in zip(("http", "grpc"), addresses, strict=True):
        host, port = address.split(":")
        command += [f"--{side}-address", host, f"--{side}-port", port]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            with tritonclient.http.InferenceServerClient(addresses[0]) as client:
                while not answers(client):
                    assert server.poll() is None, f"{program} ended with {server.returncode}"
                    time.sleep(0.1)
            yield addresses[0], addresses[1]
        finally:
            server.terminate()


def free_ports(count: int) -> list[int]:
    """Such as nobody listens at now."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


def answers(client: tritonclient.http.InferenceServerClient) -> bool:
    try:
        return bool(client.is_server_live())
    except OSError:
        return False


def live(rest_address: str, grpc_address: str, stack: ExitStack) -> tuple[Callable[[], object], Callable[[], object]]:
    """The call that asks nothing of a model, by REST and by gRPC."""
    rest = stack.enter_context(tritonclient.http.InferenceServerClient(rest_address))
    calls = stack.enter_context(tritonclient.grpc.InferenceServerClient(grpc_address))
    return rest.is_server_live, calls.is_server_live


def ways(ready: dict[str, Any], stack: ExitStack) -> dict[str, Callable[[], object]]:
    """One call by each way."""
    native = {name: stack.enter_context(Client(ready[name])) for name in ("address", "uds")}
    rest = stack.enter_context(tritonclient.http.InferenceServerClient(ready["oip"].removeprefix("http://")))
    calls = stack.enter_context(tritonclient.grpc.InferenceServerClient(ready["oip_grpc"]))
    raw = tritonclient.http.InferInput("x", [1, 64], "FP32").set_data_from_numpy(X)
    plain = tritonclient.http.InferInput("x", [1, 64], "FP32").set_data_from_numpy(X, binary_data=False)
    message = tritonclient.grpc.InferInput("x", [1, 64], "FP32").set_data_from_numpy(X)
    as_json = [tritonclient.http.InferRequestedOutput("y", binary_data=False)]
    return {
        "native, TCP": lambda: native["address"].infer("mlp", X),
        "native, Unix socket": lambda: native["uds"].infer("mlp", X),
        "door, REST live": rest.is_server_live,
        "door, REST binary": lambda: rest.infer("mlp", [raw]),
        "door, REST JSON": lambda: rest.infer("mlp", [plain], outputs=as_json),
        "door, gRPC live": calls.is_server_live,
        "door, gRPC": lambda: calls.infer("mlp", [message]),
    }


def timed(call: Callable[[], object], round_trips: int) -> list[int]:
    taken_ns = []
    for _ in range(round_trips):
        start_ns = time.perf_counter_ns()
        call()
        taken_ns.append(time.perf_counter_ns() - start_ns)
    return taken_ns


def main() -> None:
    round_trips = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    program = sys.argv[2] if len(sys.argv) > 2 else ""
    busy = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as ready, ExitStack() as stack:
        calls = ways(ready, stack)
        if program:
            (Path(folder) / "no models").mkdir()
            addresses = stack.enter_context(triton(program, Path(folder) / "no models"))
            calls["Triton, REST live"], calls["Triton, gRPC live"] = live(*addresses, stack)
        taken_ns: dict[str, list[int]] = {name: [] for name in calls}
        for number in range(ROUNDS + 1):
            for name, call in calls.items():
                measured = timed(call, round_trips if number else round_trips // 10)
                taken_ns[name] += measured if number else []  # the first round warms all of it up
    busy.append(os.getloadavg()[0])
    summaries = {name: summarise(np.array(samples)) for name, samples in taken_ns.items()}
    native_us = summaries["native, TCP"].p50_ns / 1e3
    print(f"mlp, {ROUNDS * round_trips} round trips each, µs; load average {busy[0]:.1f} before, {busy[1]:.1f} after")
    print(f"{'':22}{'p50':>9}{'p99':>9}{'p50 over native':>17}{'ratio':>8}")
    for name, summary in summaries.items():
        p50_us, p99_us = summary.p50_ns / 1e3, summary.p99_ns / 1e3
        print(f"{name:22}{p50_us:9.1f}{p99_us:9.1f}{p50_us - native_us:17.1f}{p50_us / native_us:8.2f}")


if __name__ == "__main__":
    main()
