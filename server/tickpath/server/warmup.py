"""Warming the network path: the first client must not be the one that pays for cold code.

A real session over a real loopback connection answers real requests to every inline model, on records of its own, so
that what it does is in no total.
"""

import asyncio
import socket
from typing import Final

from tickpath.observe.records import RecordWriter
from tickpath.server.model import ServedModel
from tickpath.server.service import Service
from tickpath.server.session import Session
from tickpath.wire import PREFIX_BYTES, PROTOCOL_VERSION, FrameEncoder, Hello, Infer

# CPython specialises a function's bytecode after some dozens of calls.
ROUND_TRIPS: Final = 100
# A model that takes longer is warm from its replays alone, and would hold up the start.
COMPUTE_NS_MAX: Final = 1_000_000


async def warm_network_path(service: Service) -> None:
    """Send `ROUND_TRIPS` requests to each short model through a session of its own."""
    loop = service.loop
    records = RecordWriter()
    own = Service(service.config, service.models, records, loop, service.limits.sessions_max, service.polling)
    near, far = await _tcp_pair(loop)
    try:
        transport, _ = await loop.connect_accepted_socket(lambda: Session(own), far)
        encoder = FrameEncoder()
        await _round_trip(loop, near, encoder.frame(Hello(PROTOCOL_VERSION, "warm-up")))
        for model in service.models:
            if model.compute_ns <= COMPUTE_NS_MAX:
                frame = encoder.frame(_sample(model))
                for _ in range(ROUND_TRIPS):
                    await _round_trip(loop, near, frame)
        transport.abort()
    finally:
        near.close()
    await asyncio.sleep(0)  # let connection_lost run before the records go
    while own.sessions:
        await asyncio.sleep(0)
    records.close()


def _sample(model: ServedModel) -> Infer:
    rows = model.info.buckets[0]
    inputs = [
        None if rule.optional else memoryview(array.tobytes())
        for rule, array in zip(model.rules.inputs, model.engine.sample(rows), strict=True)
    ]
    return Infer(1, model.handle, rows, list(inputs))


async def _round_trip(loop: asyncio.AbstractEventLoop, sock: socket.socket, frame: bytes) -> None:
    await loop.sock_sendall(sock, frame)
    reply = await loop.sock_recv(sock, 65536)
    missing = PREFIX_BYTES + int.from_bytes(reply[:PREFIX_BYTES], "little") - len(reply)
    while missing > 0:
        missing -= len(await loop.sock_recv(sock, missing))


async def _tcp_pair(loop: asyncio.AbstractEventLoop) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        near = socket.socket()
        near.setblocking(False)
        await loop.sock_connect(near, listener.getsockname())
        far, _ = await loop.sock_accept(listener)
    return near, far
