"""Warming the network path: the first client must not be the one that pays for cold code.

A real session over a real loopback connection answers real requests to every short model, on records of its own, so
that what it does is in no total.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Final

import msgspec

from tickpath.observe.records import RecordWriter
from tickpath.server.catalogue import Catalogue
from tickpath.server.service import Service
from tickpath.server.session import Session
from tickpath.server.version import Version
from tickpath.wire import PREFIX_BYTES, PROTOCOL_VERSION, Hello, Infer, encode_frame

# CPython specialises a function's bytecode after some dozens of calls.
ROUND_TRIPS: Final = 100
# A model that takes longer is warm from its replays alone, and would hold up the start.
COMPUTE_NS_MAX: Final = 1_000_000
SECONDS_MAX: Final = 3600.0


async def warm_network_path(service: Service, versions: Sequence[Version]) -> None:
    """Send `ROUND_TRIPS` requests to each of these versions that is short, through a session of its own."""
    loop = service.loop
    catalogue = Catalogue()
    for version in versions:
        catalogue.add(version)
    records = RecordWriter()
    # The operator's time limits are for clients: a cold frame may take longer than they allow.
    config = msgspec.structs.replace(service.config, hello_s=SECONDS_MAX, frame_s=SECONDS_MAX)
    own = Service(config, catalogue, records, loop, service.limits.sessions_max, service.polling)
    near, far = _tcp_pair()
    try:
        transport, _ = await loop.connect_accepted_socket(lambda: Session(own), far)
        await _round_trip(loop, near, encode_frame(Hello(PROTOCOL_VERSION, "warm-up")))
        for version, info in zip(catalogue.versions, catalogue.version_infos(), strict=True):
            if version.compute_ns <= COMPUTE_NS_MAX:
                frame = encode_frame(_sample(version, info.handle))
                for _ in range(ROUND_TRIPS):
                    await _round_trip(loop, near, frame)
                version.lane.recent.clear()
        transport.abort()
    finally:
        near.close()
    await asyncio.sleep(0)  # let connection_lost run before the records go
    while own.sessions:
        await asyncio.sleep(0)
    records.close()


def _sample(version: Version, handle: int) -> Infer:
    # As many as fill a run, where requests share one: it waits for nobody.
    rows = version.config.batch_rows_max or version.info.buckets[0]
    inputs = [
        None if rule.optional else memoryview(array.tobytes())
        for rule, array in zip(version.rules.inputs, version.engine.sample(rows), strict=True)
    ]
    return Infer(1, handle, rows, list(inputs))


async def _round_trip(loop: asyncio.AbstractEventLoop, sock: socket.socket, frame: bytes) -> None:
    await loop.sock_sendall(sock, frame)
    prefix = await _receive(loop, sock, PREFIX_BYTES)
    await _receive(loop, sock, int.from_bytes(prefix, "little"))


async def _receive(loop: asyncio.AbstractEventLoop, sock: socket.socket, byte_count: int) -> bytes:
    received = b""
    while len(received) < byte_count:
        piece = await loop.sock_recv(sock, byte_count - len(received))
        if not piece:
            raise ConnectionError("the session that warms the network path was closed")
        received += piece
    return received


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    for end in (near, far):
        end.setblocking(False)
    return near, far
