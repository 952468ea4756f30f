"""A server that answers each frame with a frame, in order and without ids, such as the C floor of bench/floor.c."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from tickpath.loadtest.run import OK
from tickpath.loadtest.target import UNBOUNDED, Answer, Options
from tickpath.wire import PREFIX_BYTES, FrameDecoder, RemoteProtocolError

REPLY_BYTES_MAX: Final = 64 * 1024 * 1024


class EchoTarget:
    """Sends frames of `request_bytes`, prefix included."""

    def __init__(self, options: Options) -> None:
        self.name = f"echo at {options.address}"
        self.model = ""
        self.refusal = ""
        body_bytes = options.request_bytes - PREFIX_BYTES
        self._frame = body_bytes.to_bytes(PREFIX_BYTES, "little") + bytes(body_bytes)

    def dialogue(self) -> "EchoDialogue":
        return EchoDialogue(self._frame)


class EchoDialogue:
    """The oldest request that waits is the one that is answered."""

    def __init__(self, frame: bytes) -> None:
        self.in_flight_max = UNBOUNDED
        self.ready = True
        self.ended = ""
        self._frame = frame
        self._waiting: deque[int] = deque()
        self._decoder = FrameDecoder(REPLY_BYTES_MAX)
        self.get_buffer = self._decoder.get_buffer

    def greeting(self) -> bytes:
        return b""

    def request(self, index: int) -> bytes:
        self._waiting.append(index)
        return self._frame

    def received(self, byte_count: int) -> Sequence[Answer]:
        self._decoder.received(byte_count)
        answers: list[Answer] = []
        try:
            while self._decoder.next_frame() is not None:
                # -1 was never asked: the sender counts it as an answer to nothing.
                answers.append((self._waiting.popleft() if self._waiting else -1, OK, ()))
        except RemoteProtocolError as error:
            self.ended = error.message
        return answers
