"""What stands in for an answer that a model could not give: the last good answer of the same session, from the same
handle. It is never another client's, never unmarked, and never older than the model allows. Pure.

(The other way, the same request on the CPU, is a lane's: see `Lane.standby`.)
"""

from typing import Final, NamedTuple

import msgspec

from tickpath.server.admission import Refusal, counted
from tickpath.server.config import ModelConfig
from tickpath.server.lane import Answer, Failed, stands_in
from tickpath.wire import PREFIX_BYTES, Flag, Infer, Result, decode_server_message, encode_frame

# Of one session, over all its handles: four thousand answers of a small model, and at the most sessions that there may
# be 256 MiB. What is too large for it is refused at load.
LAST_BYTES_MAX: Final = 256 * 1024


class _Kept(NamedTuple):
    rows: int
    frame: bytes
    computed_ns: int


class LastAnswers:
    """The last good answers of one session, one for each handle. Those that were kept longest ago go first where there
    are too many bytes of them."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        self._bytes = 0

    def keep(self, infer: Infer, answer: Answer) -> None:
        """This answered `infer`, and was good."""
        if (old := self._kept.pop(infer.handle, None)) is not None:
            self._bytes -= len(old.frame)
        self._kept[infer.handle] = _Kept(infer.rows, answer.frame, answer.stamps[4])
        self._bytes += len(answer.frame)
        while self._bytes > LAST_BYTES_MAX:
            self._bytes -= len(self._kept.pop(next(iter(self._kept))).frame)

    def stand_in(self, infer: Infer, failed: Refusal, config: ModelConfig, now_ns: int) -> Answer | Refusal:
        """An answer for what has none, marked and with its age; or the refusal, with why there is none either. What has
        not run stays refused, and so does all where the model's settings ask for no such answer."""
        if type(failed) is not Failed or config.fallback != "last" or not stands_in(config, failed):
            return failed
        kept, age_max_ns = self._kept.get(infer.handle), int(config.fallback_age_max_s * 1e9)
        if kept is None or kept.rows != infer.rows:
            rows = counted(infer.rows, "row")
            return _without(failed, f"this session has no earlier answer of {rows} to stand in for it")
        age_ns = now_ns - kept.computed_ns
        if age_ns > age_max_ns:
            return _without(failed, f"the last answer is {age_ns} ns old, and may be {age_max_ns}")
        flags = int(Flag.LAST_ANSWER) | failed.flags & int(Flag.INPUT_NON_FINITE)
        last = decode_server_message(memoryview(kept.frame)[PREFIX_BYTES:])
        assert isinstance(last, Result)
        result = Result(infer.id, last.version, last.outputs, failed.stamps, flags, age_ns)
        return Answer(encode_frame(result), failed.bucket_index, failed.bucket, failed.stamps, flags | failed.flags)


def _without(failed: Failed, why: str) -> Refusal:
    return msgspec.structs.replace(failed, message=f"{failed.message}; {why}")
