"""How a connection comes to be: addresses, servers that are absent or come later, waits, and one caller at a time."""

import socket
import threading
from itertools import islice
from math import inf
from pathlib import Path

import numpy as np
import pytest
from tests.unit.client.callers import MakeCaller
from tests.unit.client.scripted import Address, Script, ScriptedServer, Session, one_echo

from tickpath.client import AddressError, Client, ConnectError, ConnectionLostError, Reconnect
from tickpath.client.address import TcpAddress, UnixAddress, parse_address
from tickpath.wire import Infer, Ping, Pong

X = np.zeros((1, 3), np.float32)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:7070", TcpAddress("localhost", 7070)),
        ("[::1]:7070", TcpAddress("::1", 7070)),
        (("::1", 7070), TcpAddress("::1", 7070)),
        (("10.0.0.1", 1), TcpAddress("10.0.0.1", 1)),
        ("unix:/run/tickpath.sock", UnixAddress("/run/tickpath.sock")),
        ("unix:relative:1", UnixAddress("relative:1")),
    ],
)
def test_addresses_are_read(text: str | tuple[str, int], address: TcpAddress | UnixAddress) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "localhost",
        "localhost:",
        ":7070",
        "::1:7070",
        "host:0",
        "host:65536",
        "host:-1",
        "host:7a",
        "host:" + "7" * 5000,
        "7" * 5000,
        "tls://" * 2000 + "host:70",
        "unix:",
        "",
        ("h", 0),
    ],
)
def test_other_addresses_are_refused_with_the_forms_there_are(text: str | tuple[str, int]) -> None:
    with pytest.raises(AddressError, match="expected host:port") as caught:
        Client(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("7070", "127.0.0.1:7070"),
        (":7070", "127.0.0.1:7070"),
        ("/run/tickpath.sock", "unix:/run/tickpath.sock"),
        ("./s", "unix:./s"),
    ],
)
def test_what_was_probably_meant_is_told(text: str, meant: str) -> None:
    with pytest.raises(AddressError, match=f"did you mean {meant}") as caught:
        parse_address(text)
    assert parse_address(meant)
    assert "\n" not in str(caught.value)


def _closed_port() -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        return host, port


@pytest.fixture(params=["tcp", "unix"])
def nowhere(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "unix":
        return f"unix:{tmp_path / 'absent'}"
    host, port = _closed_port()
    return f"{host}:{port}"


def test_an_absent_server_is_named_at_once(make_caller: MakeCaller, nowhere: str) -> None:
    with pytest.raises(ConnectError) as caught, make_caller(nowhere, timeout_s=1000.0):
        pass
    assert str(caught.value).startswith(f"can't connect to {nowhere}: ")
    assert "`tickpath serve`" in str(caught.value)


def test_a_call_reconnects_once_the_server_is_back(make_caller: MakeCaller) -> None:
    def lose(session: Session) -> None:
        session.welcome()
        session.receive(Infer)

    with ScriptedServer(None, lose) as first:
        client = make_caller(first.address, reconnect=Reconnect(0.001, 0.002))
        client.__enter__()
        with pytest.raises(ConnectionLostError):
            client.infer("echo", X)
    # Nobody listens now: a call tries for as long as it has, and the next one finds the server that has come back.
    with pytest.raises(ConnectError, match="can't connect"):
        client.infer("echo", X, timeout_s=0.02)
    back = threading.Timer(0.05, _serve, [first.address, one_echo])
    back.start()
    np.testing.assert_array_equal(client.infer("echo", X, timeout_s=20.0)["y"], X)
    client.__exit__(None, None, None)
    back.join()


def _serve(address: Address, script: Script) -> None:
    with ScriptedServer(None, script, address=address):
        pass


def test_the_end_of_an_idle_connection_costs_no_request() -> None:
    ended = threading.Event()

    def end(session: Session) -> None:
        session.welcome()
        session.socket.close()
        ended.set()

    with ScriptedServer(None, end, one_echo) as server, Client(server.address) as client:
        ended.wait()
        client.infer("echo", X)


def test_waits_grow_with_jitter_up_to_the_most() -> None:
    waits_s = list(islice(Reconnect(wait_s_first=0.5, wait_s_max=2.0).waits_s(), 6))
    for wait_s, most_s in zip(waits_s, [0.5, 1.0, 2.0, 2.0, 2.0, 2.0], strict=True):
        assert most_s / 2 <= wait_s <= most_s


def test_a_second_caller_is_refused() -> None:
    pinged, refused = threading.Event(), threading.Event()

    def script(session: Session) -> None:
        session.welcome()
        ping = session.receive(Ping)
        pinged.set()
        refused.wait()
        session.send(Pong(ping.id, 1))
        session.expect_end()

    with ScriptedServer(None, script) as server, Client(server.address) as client:
        first = threading.Thread(target=client.ping)
        first.start()
        pinged.wait()
        with pytest.raises(RuntimeError, match="give each thread its own"):
            client.ping()
        refused.set()
        first.join()


@pytest.mark.parametrize("timeout_s", [inf, 1e7])
def test_a_timeout_may_be_as_long_as_one_likes(timeout_s: float, make_caller: MakeCaller) -> None:
    with ScriptedServer(None, one_echo) as server, make_caller(server.address, timeout_s=timeout_s) as client:
        np.testing.assert_array_equal(client.infer("echo", X)["y"], X)


def test_a_name_that_no_host_has_is_named(make_caller: MakeCaller) -> None:
    with pytest.raises(ConnectError, match=r"can't connect to a\.\.b:1: "), make_caller("a..b:1"):
        pass
