"""A target of a user's own: a line with a number, answered by the same line. What is refused is answered `-`."""

from collections.abc import Sequence

from tickpath.loadtest.run import OK
from tickpath.loadtest.target import UNBOUNDED, Answer, Options

REFUSED = 77


class LineTarget:
    def __init__(self, options: Options) -> None:
        self.name = f"lines at {options.address}"
        self.model = options.model or "none"
        self.refusal = ""

    def dialogue(self) -> "LineDialogue":
        return LineDialogue()


class LineDialogue:
    def __init__(self) -> None:
        self.in_flight_max = UNBOUNDED
        self.ready = False
        self.ended = ""
        self._line = b""
        self._buffer = bytearray(4096)

    def greeting(self) -> bytes:
        return b"hello\n"

    def request(self, index: int) -> bytes:
        return b"%d\n" % index

    def get_buffer(self) -> memoryview:
        return memoryview(self._buffer)

    def received(self, byte_count: int) -> Sequence[Answer]:
        *lines, self._line = (self._line + self._buffer[:byte_count]).split(b"\n")
        self.ready = self.ready or b"hello" in lines
        return [(abs(int(line)), REFUSED if line.startswith(b"-") else OK, ()) for line in lines if line != b"hello"]
