"""A tickpath server as a target."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tickpath.client import UnknownModelError
from tickpath.client.codec import Codec
from tickpath.client.token import token_from, token_now
from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.inputs import book_inputs, file_inputs
from tickpath.loadtest.run import OK
from tickpath.loadtest.target import Answer, Options
from tickpath.wire import (
    PREFIX_BYTES,
    PROTOCOL_VERSION,
    REPLY_BYTES_MAX,
    Failure,
    FrameDecoder,
    Goodbye,
    Hello,
    Infer,
    ModelInfo,
    RemoteProtocolError,
    Result,
    ServerMessage,
    Welcome,
    decode_server_message,
    encode_frame,
)

# Ids from here on take nine bytes in MessagePack, whatever follows: a frame is made once, and only its id is written
# anew.
FIRST_ID: Final = 1 << 40
_ID: Final = struct.Struct(">Q")


class TickpathTarget:
    """One model of one server. `model` None: the only one that is served."""

    def __init__(self, options: Options) -> None:
        self.name = f"tickpath at {options.address}"
        self.model = options.model or ""
        self.refusal = ""
        self.token = token_now(token_from(options.token_file))
        self._options = options
        self._frames: dict[ModelInfo, list[bytearray]] = {}

    def dialogue(self) -> "TickpathDialogue":
        return TickpathDialogue(self)

    def welcomed(self, welcome: Welcome) -> list[bytearray]:
        """Requests for the model as this connection's server describes it. Raises LoadTestError, TickpathError."""
        self.name = f"{welcome.server} at {self._options.address}"
        info = self._find(welcome)
        self.model = info.name
        if info not in self._frames:
            self._frames[info] = self._make_frames(info)
        return self._frames[info]

    def _find(self, welcome: Welcome) -> ModelInfo:
        wanted = self._options.model
        served = ", ".join(repr(model.name) for model in welcome.models) or "none"
        if wanted is None and len(welcome.models) != 1:
            raise LoadTestError(f"name the model with --model: {self._options.address} serves {served}")
        for model in welcome.models:
            if wanted in (None, model.name):
                return model
        raise UnknownModelError(f"no model {wanted!r} at {self._options.address}; it serves: {served}")

    def _make_frames(self, info: ModelInfo) -> list[bytearray]:
        path = self._options.inputs
        requests = book_inputs(info, self._options.seed) if path is None else file_inputs(info, Path(path))
        codec = Codec(info)
        frames = []
        for request in requests:
            data, layout = codec.pack(request, None)
            frames.append(bytearray(encode_frame(Infer(FIRST_ID, info.handle, layout.rows, data))))
        return frames


class TickpathDialogue:
    """Hello, Welcome, then one Result or Failure for each request, in any order."""

    def __init__(self, target: TickpathTarget) -> None:
        self.in_flight_max = 0
        self.ready = False
        self.ended = ""
        self._target = target
        self._frames: list[bytearray] = []
        self._id_at = 0
        self._decoder = FrameDecoder(REPLY_BYTES_MAX)
        self.get_buffer = self._decoder.get_buffer

    def greeting(self) -> bytes:
        return encode_frame(Hello(PROTOCOL_VERSION, "tickpath loadtest", self._target.token))

    def request(self, index: int) -> bytearray:
        frame = self._frames[index % len(self._frames)]
        _ID.pack_into(frame, self._id_at, FIRST_ID + index)
        return frame

    def received(self, byte_count: int) -> Sequence[Answer]:
        decoder = self._decoder
        decoder.received(byte_count)
        answers: list[Answer] = []
        try:
            while (frame := decoder.next_frame()) is not None:
                message = decode_server_message(frame)
                if type(message) is Result:
                    answers.append((message.id - FIRST_ID, OK, message.stamps))
                else:
                    self._take(message, answers)
        except RemoteProtocolError as error:
            self.ended = f"it sent what the protocol does not allow: {error.message}"
        return answers

    def _take(self, message: ServerMessage, answers: list[Answer]) -> None:
        match message:
            case Failure(id=0):
                self.ended = f"{message.code.name}: {message.message}"
            case Failure():
                self._target.refusal = f"{message.code.name}: {message.message}"
                answers.append((message.id - FIRST_ID, int(message.code), ()))
            case Welcome():
                self._frames = self._target.welcomed(message)
                self._id_at = self._frames[0].index(_ID.pack(FIRST_ID), PREFIX_BYTES)
                self.in_flight_max = message.limits.in_flight_max
                self.ready = True
            case Goodbye():
                pass  # what is sent from now on is refused NOT_READY, and counted as that
            case _:
                self.ended = f"it sent {type(message).__name__}, which nobody asked for"
