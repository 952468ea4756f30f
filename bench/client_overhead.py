"""What the clients add to a round trip, against a C program that sends the same bytes to the same server, in one run.

    make build/floor build/latency && python -m bench.client_overhead [ROUND_TRIPS]

The server is a process of its own that decodes an Infer and echoes its input as a Result, so that what differs is the
client alone. The runs alternate, so that a noisy machine disturbs all alike.
"""

import asyncio
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from bench.targets import c_ping, cpp_ping, write_frames
from tickpath.client import AsyncClient, Client
from tickpath.loadtest.latency import summarise
from tickpath.wire import (
    PROTOCOL_VERSION,
    FrameDecoder,
    Hello,
    Infer,
    Limits,
    ModelInfo,
    Ping,
    Pong,
    Result,
    TensorInfo,
    Welcome,
    decode_client_message,
    encode_frame,
)

FLOATS: Final = 64
ROUNDS: Final = 5
LIMITS: Final = Limits(1 << 20, 128, 16, 5_000_000_000)
TENSOR: Final = TensorInfo("x", "float32", (1, FLOATS), 0)
MODEL: Final = ModelInfo("echo", "1", 1, (TENSOR,), (TENSOR,), (1,))
Address: TypeAlias = tuple[str, int]
X: Final = np.arange(FLOATS, dtype=np.float32).reshape(1, FLOATS)


def serve(listener: socket.socket) -> None:
    while True:
        connected, _ = listener.accept()
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        decoder = FrameDecoder(LIMITS.frame_bytes_max)
        while byte_count := connected.recv_into(decoder.get_buffer()):
            decoder.received(byte_count)
            while (frame := decoder.next_frame()) is not None:
                message = decode_client_message(frame)
                if isinstance(message, Hello):
                    connected.sendall(encode_frame(Welcome(PROTOCOL_VERSION, "echo", LIMITS, (MODEL,))))
                elif isinstance(message, Ping):
                    connected.sendall(encode_frame(Pong(message.id, time.monotonic_ns())))
                elif isinstance(message, Infer) and message.inputs[0] is not None:
                    connected.sendall(encode_frame(Result(message.id, "1", [message.inputs[0]], (0, 0, 0, 0, 0, 0))))


def in_c(folder: Path, address: Address, round_trips: int) -> list[int]:
    request, preamble = write_frames(folder, MODEL)
    out = folder / "samples"
    subprocess.run(c_ping(str(address[1]), out, round_trips, 0, request, preamble), check=True)
    return read_samples(out)


def in_cpp(folder: Path, flags: tuple[str, ...], address: Address, round_trips: int) -> list[int]:
    out = folder / "samples"
    command = cpp_ping(str(address[1]), MODEL.name, out, round_trips, 0, *flags)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return read_samples(out)


def read_samples(path: Path) -> list[int]:
    samples: list[int] = np.fromfile(path, np.uint64).tolist()
    return samples


def raw(address: Address, round_trips: int) -> list[int]:
    connected = socket.create_connection(address)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = encode_frame(Infer(1, 1, 1, [X.data]))
    reply = bytearray(65536)
    taken_ns = []
    for _ in range(round_trips):
        start_ns = time.perf_counter_ns()
        connected.sendall(request)
        connected.recv_into(reply)
        taken_ns.append(time.perf_counter_ns() - start_ns)
    connected.close()
    return taken_ns


def blocking(address: Address, round_trips: int) -> list[int]:
    taken_ns = []
    with Client(address) as client:
        for _ in range(round_trips):
            start_ns = time.perf_counter_ns()
            client.infer("echo", X)
            taken_ns.append(time.perf_counter_ns() - start_ns)
    return taken_ns


async def _awaiting(address: Address, round_trips: int) -> list[int]:
    taken_ns = []
    async with AsyncClient(address) as client:
        for _ in range(round_trips):
            start_ns = time.perf_counter_ns()
            await client.infer("echo", X)
            taken_ns.append(time.perf_counter_ns() - start_ns)
    return taken_ns


def on_asyncio(address: Address, round_trips: int) -> list[int]:
    return asyncio.run(_awaiting(address, round_trips))


def on_uvloop(address: Address, round_trips: int) -> list[int]:
    import uvloop

    return uvloop.run(_awaiting(address, round_trips))


def main() -> None:
    round_trips = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    listener = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        taken_ns = measure(kinds(Path(folder)), listener.getsockname(), round_trips)
    server.terminate()
    server.join()
    print(f"{4 * FLOATS} bytes each way, {ROUNDS} rounds of {round_trips}, µs; ratios are of one round's medians")
    print(f"{'':22}{'p50':>8}{'p99':>8}{'p50 over C':>12}{'ratio':>8}  lowest and highest")
    for name, rounds_ns in taken_ns.items():
        print(line(name, rounds_ns, taken_ns["C, blocking"]))


def kinds(folder: Path) -> dict[str, Callable[[Address, int], list[int]]]:
    return {
        "C, blocking": partial(in_c, folder),
        "C++, blocking": partial(in_cpp, folder, ()),
        "C++, busy-poll": partial(in_cpp, folder, ("--spin",)),
        "Python's raw socket": raw,
        "Client": blocking,
        "AsyncClient, asyncio": on_asyncio,
        "AsyncClient, uvloop": on_uvloop,
    }


def measure(
    asked: dict[str, Callable[[Address, int], list[int]]], address: Address, round_trips: int
) -> dict[str, list[list[int]]]:
    """Of each kind, its rounds."""
    taken_ns: dict[str, list[list[int]]] = {name: [] for name in asked}
    for _ in range(ROUNDS):
        for name, kind in asked.items():
            taken_ns[name].append(kind(address, round_trips))
    return taken_ns


def line(name: str, rounds_ns: list[list[int]], floor_ns: list[list[int]]) -> str:
    p50s_us = np.median(rounds_ns, axis=1) / 1e3
    ratios = p50s_us / (np.median(floor_ns, axis=1) / 1e3)
    over_us = np.median(p50s_us) - np.median(np.median(floor_ns, axis=1)) / 1e3
    p99_us = summarise(np.concatenate(rounds_ns)).p99_ns / 1e3
    return (
        f"{name:22}{np.median(p50s_us):8.1f}{p99_us:8.1f}{over_us:12.1f}{np.median(ratios):8.2f}"
        f"  {ratios.min():.2f}-{ratios.max():.2f}"
    )


if __name__ == "__main__":
    main()
