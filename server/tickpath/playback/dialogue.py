"""What is said on one connection of a playback: a recorded session, under its client's name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from tickpath.loadtest.run import OK
from tickpath.loadtest.target import Answer
from tickpath.recorder.entries import DescribedModel
from tickpath.wire import (
    PROTOCOL_VERSION,
    REPLY_BYTES_MAX,
    Failure,
    FeedClosed,
    FeedOpened,
    FeedSnapshot,
    FrameDecoder,
    Goodbye,
    Hello,
    ModelInfo,
    ModelList,
    Models,
    RemoteProtocolError,
    Result,
    ServerMessage,
    Welcome,
    decode_server_message,
    encode_frame,
)

_MODELS_ID: Final = 1
FIRST_ID: Final = 2
"""Of the request with index 0."""

ANONYMOUS: Final = "tickpath replay"
"""Of a session whose Hello came before the recording began."""


class Wanted(msgspec.Struct, frozen=True):
    """Which model is to answer for a recorded one; `version` "": the one that is live."""

    name: str
    version: str = ""


class PlaybackDialogue:
    """Hello and Models at once, then one reply for each request, in any order; `told` hears each with its index, while
    its bytes hold."""

    def __init__(self, client: str, token: str, told: Callable[[int, ServerMessage], None]) -> None:
        self.in_flight_max = 0
        self.ready = False
        self.ended = ""
        self.server = ""
        self._client = client
        self._token = token
        self._told = told
        self._live: Mapping[str, ModelInfo] = {}
        self._pinned: Mapping[tuple[str, str], ModelInfo] = {}
        self._decoder = FrameDecoder(REPLY_BYTES_MAX)
        self.get_buffer = self._decoder.get_buffer

    def greeting(self) -> bytes:
        hello = Hello(PROTOCOL_VERSION, self._client or ANONYMOUS, self._token)
        return encode_frame(hello) + encode_frame(Models(_MODELS_ID, versions=True))

    def find(self, wanted: Wanted, recorded: DescribedModel) -> ModelInfo | None:
        """The model that is to answer. A request that asked for a version asks for it again, where it is there."""
        if wanted.version:
            return self._pinned.get((wanted.name, wanted.version))
        pinned = self._pinned.get((wanted.name, recorded.version)) if recorded.version else None
        return pinned or self._live.get(wanted.name)

    def hashes(self) -> Mapping[tuple[str, str], str]:
        """sha256 by name and version, of all that the server has loaded."""
        return {key: info.sha256 for key, info in self._pinned.items()}

    def received(self, byte_count: int) -> Sequence[Answer]:
        decoder = self._decoder
        decoder.received(byte_count)
        answers: list[Answer] = []
        try:
            while (frame := decoder.next_frame()) is not None:
                self._take(decode_server_message(frame), answers)
        except RemoteProtocolError as error:
            self.ended = f"it sent what the protocol does not allow: {error.message}"
        return answers

    def _take(self, message: ServerMessage, answers: list[Answer]) -> None:
        match message:
            case Result():
                self._answer(message.id, OK, message.stamps, message, answers)
            case Failure(id=0):
                self.ended = f"{message.code.name}: {message.message}"
            case Failure():
                self._answer(message.id, int(message.code), (), message, answers)
            case FeedOpened() | FeedClosed() | FeedSnapshot():
                self._answer(message.id, OK, (), message, answers)
            case Welcome():
                self.server = message.server
                self.in_flight_max = message.limits.in_flight_max
                self._live = {info.name: info for info in message.models}
            case ModelList():
                self._pinned = {(info.name, info.version): info for info in message.models}
                self.ready = True
            case Goodbye():
                pass  # what is sent from now on is refused NOT_READY, and compared as that
            case _:
                self.ended = f"it sent {type(message).__name__}, which nobody asked for"

    def _answer(
        self, message_id: int, code: int, stamps: tuple[int, ...], message: ServerMessage, answers: list[Answer]
    ) -> None:
        index = message_id - FIRST_ID
        self._told(index, message)
        answers.append((index, code, stamps))
