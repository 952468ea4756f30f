"""Where a server listens: addresses that are taken, left behind, of the other family, or none at all."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tickpath.server.listeners import AddressError, address_of, listen_tcp, listen_unix, remove_file


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def refused(error: pytest.ExceptionInfo[AddressError]) -> str:
    line = str(error.value)
    assert "\n" not in line
    return line


def test_a_free_port_is_found_and_named() -> None:
    with listen_tcp("127.0.0.1", 0) as listener:
        host, _, port = address_of(listener).rpartition(":")
        assert (host, int(port)) == listener.getsockname()
        with socket.create_connection((host, int(port))):
            connection, _ = listener.accept()
            connection.close()


def test_a_taken_port_is_named_and_never_shared(taken: int) -> None:
    with pytest.raises(AddressError) as error:
        listen_tcp("127.0.0.1", taken)
    line = refused(error)
    assert f"127.0.0.1:{taken}" in line
    assert line.endswith("Address already in use; stop what uses it, or give another --port")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6_is_named_in_brackets() -> None:
    with listen_tcp("::1", 0) as listener:
        port = listener.getsockname()[1]
        assert address_of(listener) == f"[::1]:{port}"
        with pytest.raises(AddressError, match=f"{port}: Address already in use"):
            listen_tcp("::1", port)
        with socket.create_connection(("::1", port)):
            pass


def test_a_host_may_have_a_name() -> None:
    with listen_tcp("localhost", 0) as listener:
        assert address_of(listener).startswith(("127.", "[::1]"))


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b", "x" * 70])
def test_a_host_that_is_not_ours_is_named(host: str) -> None:
    """192.0.2.1 is for documentation and nobody's; the last two are no names at all."""
    with pytest.raises(AddressError) as error:
        listen_tcp(host, 7070)
    assert f"{host}:7070" in refused(error)
    assert "of this machine" in refused(error)
    assert "--host" in refused(error)


def test_a_socket_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
    with listen_unix(path) as listener, socket.socket(socket.AF_UNIX) as client:
        assert address_of(listener) == f"unix:{path}"
        client.connect(str(path))


def test_a_socket_in_use_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listen_unix(path) as first:
        with pytest.raises(AddressError) as error:
            listen_unix(path)
        assert str(path) in refused(error)
        assert "--uds" in refused(error)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            connection, _ = first.accept()
            connection.close()


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(AddressError) as error:
        listen_unix(path)
    assert str(path) in refused(error)
    assert "it is a file, not a socket" in refused(error)
    assert path.read_text() == "data"
    with pytest.raises(AddressError, match="it is a folder, not a socket"):
        listen_unix(tmp_path)


@pytest.mark.parametrize(("name", "remedy"), [("missing/s", "make its folder"), ("x" * 200, "another --uds")])
def test_a_path_that_cannot_be_is_named(name: str, remedy: str, tmp_path: Path) -> None:
    with pytest.raises(AddressError) as error:
        listen_unix(tmp_path / name)
    assert str(tmp_path / name) in refused(error)
    assert remedy in refused(error)


def test_a_successors_file_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listen_unix(path):
        inode = path.stat().st_ino
        path.unlink()
        with listen_unix(path):
            remove_file(path, inode)
            assert path.is_socket()
            remove_file(path, path.stat().st_ino)
            assert not path.exists()
            remove_file(path, inode)


def test_a_server_that_stands_still_is_not_waited_for(tmp_path: Path) -> None:
    """Its backlog is full, as when it is stopped or swapped out."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(str(path))
        listener.listen(0)
        waiting.connect(str(path))
        with pytest.raises(AddressError, match="Address already in use"):
            listen_unix(path)
