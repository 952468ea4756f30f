"""As much of systemd as a service talks to: a datagram socket, and what was said on it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

WAIT_S_MAX = 60


class Manager:
    """Hears what its service says."""

    def __init__(self, listener: socket.socket, address: str) -> None:
        self._listener = listener
        self.address = address

    def hear(self) -> dict[str, str]:
        """The next datagram, as its fields."""
        return dict(line.split("=", 1) for line in self._listener.recv(4096).decode().splitlines())

    def hear_until(self, field: str) -> list[dict[str, str]]:
        """Datagrams up to the first that has this field."""
        heard = [self.hear()]
        while field not in heard[-1]:
            heard.append(self.hear())
        return heard

    def count_until_silent(self, silence_s: float) -> int:
        """How many datagrams still come before none has for so long."""
        self._listener.settimeout(silence_s)
        count = 0
        with suppress(TimeoutError):
            while self._listener.recv(4096):
                count += 1
        self._listener.settimeout(WAIT_S_MAX)
        return count


@contextmanager
def manager(folder: Path | None) -> Iterator[Manager]:
    """Listening in `folder`, or under an abstract name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        name = f"tickpath-test-{token_hex(8)}"
        path = f"\0{name}" if folder is None else str(folder / "notify")
        listener.bind(path)
        listener.settimeout(WAIT_S_MAX)
        yield Manager(listener, path.replace("\0", "@"))
