"""A lane runs requests of one model, one after the other: the CPU's form of a stream. One thread owns it, with its
slots."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from time import monotonic_ns
from typing import Final

import msgspec

from tickpath.engines import DeviceLostError, Engine, EngineFailedError
from tickpath.graphs import Slot, bucket_index_by_rows
from tickpath.server.admission import OUR_FAULT, Refusal
from tickpath.server.compute_time import ComputeTime
from tickpath.server.config import ModelConfig
from tickpath.server.dispatch import Turn
from tickpath.server.numeric_policy import OUTPUT_FLAGS, input_refusal, judge_outputs, output_rules
from tickpath.server.recent import RecentAnswers
from tickpath.wire import Code, Flag, Infer, Result, encode_frame

log = logging.getLogger(__name__)

# Enough for the runtime's lazy allocations (two runs) and for a median that one interrupted replay does not move.
WARM_REPLAYS_MIN: Final = 8
# And as many more as fit in this time, for branch predictors and caches; ten models must still be ready in two seconds.
WARM_NS_PER_BUCKET: Final = 20_000_000
WARM_REPLAYS_MAX: Final = 300

INPUT_NON_FINITE: Final = int(Flag.INPUT_NON_FINITE)
DEVICE_LOST: Final = Refusal(Code.NOT_READY, "this server has lost its device and ends: go to another")

DeviceLost = Callable[[DeviceLostError], object]
"""Told by a lane, on its own thread, that no model of this process can answer on that device any more."""

Stamps = tuple[int, int, int, int, int, int]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A request that is answered: the whole reply frame and what the records keep of it. `flags`: all that was seen on
    the way, which may be more than the reply tells of itself. `replays`: 0 where it shared the run of another, which
    has 1; `bucket` is then what of the bucket is counted here."""

    frame: bytes
    bucket_index: int
    bucket: int
    stamps: Stamps
    flags: int = 0
    replays: int = 1


class InputRefusedError(Exception):
    """An input is not to be run. The text says why, and so does `refusal`."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class AnswerRefusedError(Exception):
    """An output is not to be given. The text says why; `flags`: what was seen of the outputs."""

    def __init__(self, why: str, flags: int) -> None:
        super().__init__(f"the answer is refused: {why}")
        self.flags = flags


class Failed(Refusal, frozen=True, gc=False, kw_only=True):
    """A request that has run and has no answer: the runtime failed, or an output is refused. Another answer may stand
    in for it, with what is kept of its way."""

    bucket_index: int
    bucket: int
    stamps: Stamps


class Lane:
    """The slots of one model, one per bucket, and the way through them. Raises EngineFailedError,
    DeviceLostError.

    `standby`: runs again what fails here, on another engine. `mark`: a flag of every answer of this lane.
    """

    def __init__(
        self,
        engine: Engine,
        config: ModelConfig,
        buckets: tuple[int, ...],
        standby: "Lane | None" = None,
        mark: int = 0,
    ) -> None:
        spec, policy = engine.spec, config.numeric
        self._rules = output_rules(policy, spec.outputs)
        self.slots = self._capture(engine, buckets)
        self.standby = standby
        self._config = config
        self._version = config.version
        self.optional_inputs = tuple(index for index, tensor in enumerate(spec.inputs) if tensor.optional)
        self._bucket_index = bucket_index_by_rows(buckets)
        self._policy = policy
        self._looks_at_inputs = policy.inputs != "pass"
        self._looks_at_outputs = policy.outputs != "pass" or policy.checks_bounds
        self._mark = mark
        self.device_lost: DeviceLost = _untold
        """Who is told that the device is gone, once the lane serves."""
        self.recent = RecentAnswers(sum(tensor.bytes_at(buckets[-1]) for tensor in (*spec.inputs, *spec.outputs)))
        self.compute_ns = [0] * len(buckets)
        """What a replay of each bucket takes: the median while warming up."""
        self.times = [ComputeTime(0) for _ in buckets]
        """What a request of each bucket takes now. Written by the loop's thread, which knows when answers have left."""

    def time_of(self, rows: int) -> ComputeTime:
        """What a request of so many rows takes."""
        return self.times[self._bucket_index[rows]]

    def warm(self, samples: Sequence[Sequence[bytes]]) -> None:
        """Replay every bucket until it costs what it will cost, on inputs of its own (`samples`, by bucket).
        Raises EngineFailedError, DeviceLostError."""
        self.compute_ns = [_warm(slot, inputs) for slot, inputs in zip(self.slots, samples, strict=True)]
        self.times = [ComputeTime(compute_ns) for compute_ns in self.compute_ns]

    def run(self, infer: Infer, first_byte_ns: int, received_ns: int) -> Answer | Refusal:
        """Schedule, copy in, replay, copy out: the way of every request. Never raises, since a lane must go on: a
        failure of the engine, and a fault of ours, is this request's refusal."""
        started_ns = monotonic_ns()
        try:
            rows = infer.rows
            bucket_index = self._bucket_index[rows]
            if infer.budget_ns and (
                too_late := too_late_by(infer.budget_ns, started_ns - received_ns, self.times[bucket_index])
            ):
                return too_late
            slot = self.slots[bucket_index]
            slot.fill(rows, infer.inputs)
            flags = self._mark
            if self._looks_at_inputs and (name := slot.bad_value()) is not None:
                flags |= self._judge_input(name)
            filled_ns = monotonic_ns()
            slot.replay()
            computed_ns = monotonic_ns()
            if self._looks_at_outputs and slot.has_bad_output(rows):
                flags |= self._judge_outputs(slot, rows)
            outputs = slot.read(rows)
            stamps = (first_byte_ns, received_ns, started_ns, filled_ns, computed_ns, monotonic_ns())
            frame = encode_frame(Result(infer.id, self._version, outputs, stamps, flags))
            if started_ns >= self.recent.next_ns:
                self.recent.keep(infer, frame, started_ns)
        except InputRefusedError as error:
            return error.refusal
        except (EngineFailedError, AnswerRefusedError) as error:
            stamps = (first_byte_ns, received_ns, started_ns, filled_ns, now_ns := monotonic_ns(), now_ns)
            return self._failed(infer, error, bucket_index, flags, stamps)
        except DeviceLostError as error:
            self.device_lost(error)
            return DEVICE_LOST
        except Exception:
            log.exception("a fault of the server refused a request")
            return Refusal(Code.INTERNAL, OUR_FAULT)
        return Answer(frame, bucket_index, slot.bucket, stamps, flags)

    def compute(self, rows: int, inputs: Sequence[memoryview | None]) -> tuple[list[memoryview], int]:
        """As `run`, for whoever is no client: the outputs as they are read, which hold until the next request, and the
        flags. Raises InputRefusedError, AnswerRefusedError, EngineFailedError, DeviceLostError."""
        slot = self.slots[self._bucket_index[rows]]
        slot.fill(rows, inputs)
        flags = self._mark
        if self._looks_at_inputs and (name := slot.bad_value()) is not None:
            flags |= self._judge_input(name)
        slot.replay()
        if self._looks_at_outputs and slot.has_bad_output(rows):
            flags |= self._judge_outputs(slot, rows)
        return slot.read(rows), flags

    def run_turn(self, turn: Turn) -> list[Answer | Refusal]:
        """Run requests that share a run, or one alone. Where there is anything the matter with a shared run, each
        request is run by itself, so that none suffers for another."""
        if len(turn) > 1 and (answers := self._run_together(turn)) is not None:
            return answers
        return [self.run(request.infer, request.first_byte_ns, request.received_ns) for request in turn]

    def _run_together(self, turn: Turn) -> list[Answer | Refusal] | None:
        """As `run`, for requests whose rows lie behind one another in one slot. None: it can't be, or it failed."""
        started_ns = monotonic_ns()
        bucket_index = self._bucket_index[sum(request.infer.rows for request in turn)]
        time = self.times[bucket_index]
        budgets = ((each.infer.budget_ns, started_ns - each.received_ns) for each in turn if each.infer.budget_ns)
        if any(too_late_by(budget_ns, waited_ns, time) for budget_ns, waited_ns in budgets):
            return None
        slot = self.slots[bucket_index]
        try:
            rows = slot.fill_together([(request.infer.rows, request.infer.inputs) for request in turn])
            if self._looks_at_inputs and slot.bad_value() is not None:
                return None
            filled_ns = monotonic_ns()
            slot.replay()
            computed_ns = monotonic_ns()
            if self._looks_at_outputs and slot.has_bad_output(rows):
                return None
            return self._share_out(turn, bucket_index, rows, (started_ns, filled_ns, computed_ns, monotonic_ns()))
        except Exception:  # each by itself will say what it is
            log.debug("a shared run failed", exc_info=True)
            return None

    def _share_out(
        self, turn: Turn, bucket_index: int, rows: int, ran: tuple[int, int, int, int]
    ) -> list[Answer | Refusal]:
        """Each request's own rows. The first one stands for the run, with all rows that only fill the bucket."""
        slot, start, answers = self.slots[bucket_index], 0, list[Answer | Refusal]()
        for request in turn:
            infer = request.infer
            stamps = (request.first_byte_ns, request.received_ns, *ran)
            outputs = slot.read_from(start, infer.rows)
            frame = encode_frame(Result(infer.id, self._version, outputs, stamps, self._mark))
            bucket = infer.rows if start else infer.rows + slot.bucket - rows
            answers.append(Answer(frame, bucket_index, bucket, stamps, self._mark, replays=0 if start else 1))
            if ran[0] >= self.recent.next_ns:
                self.recent.keep(infer, frame, ran[0])
            start += infer.rows
        return answers

    @property
    def unsettled(self) -> bool:
        """Whether there is work that was put off until after the replies."""
        return False

    def at_rest(self, infer: Infer) -> bool:
        """Whether this is a tick that goes on from a state, with nothing to be done before it."""
        return False

    def settle(self) -> None:
        """Do some of that work, in one run: a request may have come meanwhile. On the lane's thread; never raises."""

    def close(self) -> None:
        """Give back buffers and graphs. Nothing may run any more. Raises EngineFailedError, after all the rest has
        gone, where something could not be given back."""
        with ExitStack() as stack:
            if self.standby is not None:
                stack.callback(self.standby.close)
            for slot in self.slots:
                stack.callback(slot.close)
            self.slots.clear()
            self.recent.clear()

    def _capture(self, engine: Engine, buckets: tuple[int, ...]) -> list[Slot]:
        """A slot for each bucket. The largest first: what it needs from the runtime's arena then serves the smaller
        ones too."""
        slots: list[Slot] = []
        with ExitStack() as unless_made:
            for bucket in reversed(buckets):
                slots.append(Slot(engine, bucket, self._rules))
                unless_made.callback(slots[-1].close)
            unless_made.pop_all()
        return slots[::-1]

    def _judge_input(self, name: str) -> int:
        """The flags of a request whose input `name` is not finite. Raises InputRefusedError."""
        if self._policy.inputs == "refuse":
            raise InputRefusedError(input_refusal(name))
        return INPUT_NON_FINITE

    def _judge_outputs(self, slot: Slot, rows: int) -> int:
        """The flags of outputs that break a rule. Raises AnswerRefusedError."""
        seen, why = judge_outputs(self._policy, slot.non_finite_output(rows), slot.output_outside(rows))
        if why:
            raise AnswerRefusedError(why, seen)
        return seen

    def _failed(
        self,
        infer: Infer,
        error: EngineFailedError | AnswerRefusedError,
        bucket_index: int,
        flags: int,
        stamps: Stamps,
    ) -> Answer | Refusal:
        """The request has no answer here; perhaps it has one on the standby."""
        if isinstance(error, AnswerRefusedError):
            flags |= error.flags
        bucket = self.slots[bucket_index].bucket
        failed = Failed(
            Code.ENGINE_FAILED, why_failed(error), flags, bucket_index=bucket_index, bucket=bucket, stamps=stamps
        )
        if self.standby is None or not stands_in(self._config, failed):
            return failed
        answer = self.standby.run(infer, stamps[0], stamps[1])
        if type(answer) is not Answer:
            return failed
        return msgspec.structs.replace(answer, flags=answer.flags | flags)


def _untold(_error: DeviceLostError) -> None:
    """Whoever runs a lane that does not serve has the refusal to go by."""


def _warm(slot: Slot, inputs: Sequence[bytes]) -> int:
    slot.fill(slot.bucket, inputs)
    times_ns: list[int] = []
    end_ns = monotonic_ns() + WARM_NS_PER_BUCKET
    while len(times_ns) < WARM_REPLAYS_MIN or (monotonic_ns() < end_ns and len(times_ns) < WARM_REPLAYS_MAX):
        start_ns = monotonic_ns()
        slot.replay()
        times_ns.append(monotonic_ns() - start_ns)
    return int(median(times_ns[WARM_REPLAYS_MIN // 2 :]))


def too_late_by(budget_ns: int, waited_ns: int, time: ComputeTime) -> Refusal | None:
    """The refusal of a request that has waited so long that its budget can't be kept any more, if so."""
    needed_ns = time.needed_ns(budget_ns)
    if waited_ns + needed_ns <= budget_ns:
        return None
    return Refusal(
        Code.DEADLINE,
        f"the budget of {budget_ns} ns can't be kept: the request has waited {waited_ns} ns and the model takes "
        f"{needed_ns}, so it was not run",
    )


def why_failed(error: EngineFailedError | AnswerRefusedError) -> str:
    """What whoever asked is told of a request that has run and has no answer."""
    return str(error) if isinstance(error, AnswerRefusedError) else f"the model's runtime failed: {error}"


def stands_in(config: ModelConfig, failed: Failed) -> bool:
    """Whether another answer may stand in for this one: always where there is none, and where it is refused, if that
    is allowed."""
    return config.fallback_for_refused or not failed.flags & OUTPUT_FLAGS
