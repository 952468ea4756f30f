"""What is said where something else listens than a target."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.processes import free_port
from tests.reference_server import Behaviour, reference_server

from tickpath.loadtest import hints
from tickpath.loadtest.conduct import try_out
from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.hints import hint
from tickpath.loadtest.runner import Load
from tickpath.loadtest.schedule import Constant
from tickpath.loadtest.target import Options

ANSWER = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


@contextmanager
def http_server(patient: bool) -> Iterator[str]:
    """A patient one waits for the end of a line, as the observer does; the other takes anything for a bad request."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 4 * hints.ANSWER_S

        def handle(self) -> None:
            if patient:
                super().handle()
            else:
                self.connection.recv(4096)
                self.connection.sendall(ANSWER)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("patient", [True, False])
def test_http_is_named(patient: bool) -> None:
    with http_server(patient) as address:
        assert hint(address).startswith(
            f"{address} answers HTTP, as the observer of tickpath serve does: give the wire"
        )


def test_a_load_of_http_is_refused_with_the_hint() -> None:
    with http_server(patient=False) as address, pytest.raises(LoadTestError, match=r"answers HTTP, .* the wire port"):
        try_out(Load(Options(address), Constant(100, 1)))


def test_elsewhere_there_is_no_hint(tmp_path: Path) -> None:
    with reference_server(tmp_path, Behaviour()) as server:
        assert hint(server.address) == ""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert hint(f"127.0.0.1:{silent.getsockname()[1]}") == ""
    assert hint(f"127.0.0.1:{free_port()}") == ""
    assert hint("unix:/nowhere") == ""
