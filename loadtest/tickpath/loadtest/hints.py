"""What may be wrong where a target can't be talked to."""

import socket
from typing import Final

from tickpath.client.address import TcpAddress, parse_address
from tickpath.wire import PROTOCOL_VERSION, Hello, encode_frame

# Who is alive and understands answers within milliseconds.
ANSWER_S: Final = 0.5
HELLO: Final = encode_frame(Hello(PROTOCOL_VERSION, "tickpath loadtest"))
GET: Final = b"GET /livez HTTP/1.0\r\n\r\n"
HTTP: Final = b"HTTP/"


def hint(address: str) -> str:
    """What listens at `address` in place of a target; empty where that is unknown. Asks it over new connections, and
    as a client does first: a server is not bothered with what it doesn't speak."""
    place = parse_address(address)
    if not isinstance(place, TcpAddress) or (_answer(place, HELLO) or _answer(place, GET)) != HTTP:
        return ""
    return (
        f"{address} answers HTTP, as the observer of tickpath serve does: give the wire port, which tickpath serve "
        "prints when it starts (7070 unless told)"
    )


def _answer(place: TcpAddress, said: bytes) -> bytes:
    """As much of it as HTTP begins with; empty where none came."""
    try:
        with socket.create_connection((place.host, place.port), ANSWER_S) as connection:
            connection.sendall(said)
            return connection.recv(len(HTTP))
    except OSError:
        return b""
