"""What no file tells: how often this machine stops a thread that only looks at the clock, and what a round trip over
loopback costs here."""

import gc
import os
import socket
from dataclasses import dataclass
from threading import Thread
from time import monotonic_ns
from typing import Final

import numpy as np

from tickpath.doctor.finding import Finding, ok, unseen, warn
from tickpath.doctor.host import Host

# A look at the clock takes 0.1 µs here, and a tick of the kernel's timer some 5: what is longer is somebody else.
GAP_NS_MIN: Final = 20_000
# A tail that is counted in hundreds of microseconds can't stand more.
GAP_NS_MAX: Final = 1_000_000
ROUND_TRIPS: Final = 3_000
MESSAGE_BYTES: Final = 280
# A small model served is then mostly waiting for wake-ups.
ROUND_TRIP_NS_MAX: Final = 100_000


@dataclass(frozen=True)
class Hiccups:
    """Gaps of GAP_NS_MIN and more that a spinning thread saw in `seconds`."""

    seconds: float
    gaps_ns: list[int]

    @property
    def worst_ns(self) -> int:
        return max(self.gaps_ns, default=0)

    @property
    def share(self) -> float:
        """Of the time, what was lost in them."""
        return sum(self.gaps_ns) / 1e9 / self.seconds


def spin(host: Host, seconds: float) -> Hiccups:
    """Look at the clock for so long, on the server's processors."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, host.cpus)
    gc.disable()
    try:
        gaps_ns = []
        last_ns = monotonic_ns()
        end_ns = last_ns + int(seconds * 1e9)
        while last_ns < end_ns:
            now_ns = monotonic_ns()
            if now_ns - last_ns >= GAP_NS_MIN:
                gaps_ns.append(now_ns - last_ns)
            last_ns = now_ns
        return Hiccups(seconds, gaps_ns)
    finally:
        gc.enable()
        os.sched_setaffinity(0, allowed)


def judge_hiccups(hiccups: Hiccups) -> Finding:
    """Of what `spin` saw."""
    found = (
        f"worst {hiccups.worst_ns / 1000:,.0f} µs; {len(hiccups.gaps_ns):,} over {GAP_NS_MIN // 1000} µs in "
        f"{hiccups.seconds:g} s, {hiccups.share:.2%} of the time"
    )
    if hiccups.worst_ns <= GAP_NS_MAX:
        return ok("hiccups", found)
    return warn("hiccups", found, "what is warned of above; no request is quicker than the gap that it falls into")


def round_trips() -> Finding:
    """The floor under every request that comes by TCP."""
    try:
        return judge_round_trips(round_trips_ns())
    except OSError as error:
        return unseen("TCP floor", f"no connection over loopback: {error.strerror or error}")


def round_trips_ns(count: int = ROUND_TRIPS) -> "np.typing.NDArray[np.int64]":
    """Of a blocking ping-pong over loopback, between two threads that both only block in the kernel: int64[count]."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        echo = Thread(target=_echo, args=(listener, count), daemon=True)
        echo.start()
        taken_ns = np.empty(count, np.int64)
        with socket.create_connection(listener.getsockname(), timeout=10) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            message, reply = bytes(MESSAGE_BYTES), bytearray(MESSAGE_BYTES)
            for index in range(count):
                start_ns = monotonic_ns()
                connection.sendall(message)
                _receive(connection, reply)
                taken_ns[index] = monotonic_ns() - start_ns
        echo.join()
    return taken_ns


def _echo(listener: socket.socket, count: int) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = bytearray(MESSAGE_BYTES)
        for _ in range(count):
            _receive(connection, buffer)
            connection.sendall(buffer)


def _receive(connection: socket.socket, buffer: bytearray) -> None:
    view = memoryview(buffer)
    while view:
        count = connection.recv_into(view)
        if count == 0:
            raise ConnectionResetError("the other side has gone")
        view = view[count:]


def judge_round_trips(taken_ns: "np.typing.NDArray[np.int64]") -> Finding:
    """Of the ping-pong."""
    p50, p99 = np.percentile(taken_ns, (50, 99))
    found = f"p50 {p50 / 1000:.1f} µs, p99 {p99 / 1000:.1f} µs ({len(taken_ns):,} blocking round trips of Python's)"
    if p50 <= ROUND_TRIP_NS_MAX:
        return ok("TCP floor", found)
    return warn("TCP floor", found, "wake-ups are slow: idle states, a virtual machine, or others on the processors")
