"""What the clients add to a round trip, against a raw socket loop with the same bytes and the same server, in one run.

    python -m bench.client_overhead [ROUND_TRIPS]

The server is a process of its own that decodes an Infer and echoes its input as a Result, so that what differs is the
client alone. The runs alternate, so that a noisy machine disturbs all alike.
"""

import asyncio
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from tickpath.client import AsyncClient, Client
from tickpath.loadtest.latency import summarise
from tickpath.wire import (
    PROTOCOL_VERSION,
    FrameDecoder,
    Hello,
    Infer,
    Limits,
    ModelInfo,
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
                elif isinstance(message, Infer) and message.inputs[0] is not None:
                    connected.sendall(encode_frame(Result(message.id, "1", [message.inputs[0]], (0, 0, 0, 0, 0, 0))))


def raw(address: tuple[str, int], round_trips: int) -> list[int]:
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


def blocking(address: tuple[str, int], round_trips: int) -> list[int]:
    taken_ns = []
    with Client(address) as client:
        for _ in range(round_trips):
            start_ns = time.perf_counter_ns()
            client.infer("echo", X)
            taken_ns.append(time.perf_counter_ns() - start_ns)
    return taken_ns


async def _awaiting(address: tuple[str, int], round_trips: int) -> list[int]:
    taken_ns = []
    async with AsyncClient(address) as client:
        for _ in range(round_trips):
            start_ns = time.perf_counter_ns()
            await client.infer("echo", X)
            taken_ns.append(time.perf_counter_ns() - start_ns)
    return taken_ns


def on_asyncio(address: tuple[str, int], round_trips: int) -> list[int]:
    return asyncio.run(_awaiting(address, round_trips))


def on_uvloop(address: tuple[str, int], round_trips: int) -> list[int]:
    import uvloop

    return uvloop.run(_awaiting(address, round_trips))


def main() -> None:
    round_trips = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    listener = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
    server.start()
    kinds: dict[str, Callable[[tuple[str, int], int], list[int]]] = {
        "raw socket": raw,
        "Client": blocking,
        "AsyncClient, asyncio": on_asyncio,
        "AsyncClient, uvloop": on_uvloop,
    }
    taken_ns: dict[str, list[int]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, kind in kinds.items():
            taken_ns[name] += kind(listener.getsockname(), round_trips)
    server.terminate()
    server.join()
    summaries = {name: summarise(np.array(samples)) for name, samples in taken_ns.items()}
    floor_us = summaries["raw socket"].p50_ns / 1e3
    print(f"{4 * FLOATS} bytes each way, {ROUNDS * round_trips} round trips each, µs")
    print(f"{'':22}{'p50':>8}{'p99':>8}{'p50 over raw':>14}{'ratio':>8}")
    for name, summary in summaries.items():
        p50_us, p99_us = summary.p50_ns / 1e3, summary.p99_ns / 1e3
        print(f"{name:22}{p50_us:8.1f}{p99_us:8.1f}{p50_us - floor_us:14.1f}{p50_us / floor_us:8.2f}")


if __name__ == "__main__":
    main()
