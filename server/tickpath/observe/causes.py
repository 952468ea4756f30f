"""Why a request was slow: which of its stages took longer than usual, and what else went on during those. Pure.

Nothing here proves a cause. It says what overlapped in time with a stage that it could have held up, and how much of
it there was; what is far too small to matter to that stage is left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tickpath.observe.records import Event, EventKind
from tickpath.observe.schema import Cause, SlowStage
from tickpath.wire import STAGES

# A stage explains a request's lateness if it has at least this share of it.
LATE_SHARE_MIN: Final = 0.2
# An amount of time under this share of a stage's lateness did not make it late.
AMOUNT_SHARE_MIN: Final = 0.05
# What touching a page for the first time takes, to tell whether some could have mattered: 0.1 to 1 µs by machine.
MINOR_FAULT_NS: Final = 1_000

LOOP_STAGES: Final = frozenset({"receive", "queue", "send"})
"""Stages of a model on a thread that the loop's thread runs, or hands over to it. Inline and polled: all are."""
LANE_STAGES: Final = frozenset(STAGES) - {"receive"}
"""Those in which a model's own thread matters."""
EVERY_STAGE: Final = frozenset((*STAGES, "send"))

_SLOWLY: Final = "its bytes came slowly, or other sessions had their turns"
PERHAPS: Final = {
    ("receive", "inline"): _SLOWLY,
    ("receive", "polled"): _SLOWLY,
    ("receive", "thread"): _SLOWLY,
    ("queue", "inline"): "requests before it in its session, or other sessions had their turns",
    ("queue", "polled"): "the device had those before it in all its slots, or other sessions had their turns",
    ("queue", "thread"): "one was running, or the model's thread was slow to wake",
    ("send", "thread"): "the loop was busy with other sessions",
}
"""By stage and the model's executor: what leaves no trace of its own."""

_OF_THE_LOOP: Final = frozenset({EventKind.LOOP_PREEMPTED, EventKind.RUN_QUEUE, EventKind.STOLEN})
_AMOUNT_IS_NS: Final = frozenset({EventKind.RUN_QUEUE, EventKind.THROTTLED, EventKind.STOLEN})


@dataclass(frozen=True)
class Span:
    """One stage of one request. `usual_ns`: the median of its model; None: not known."""

    name: str
    start_ns: int
    end_ns: int
    usual_ns: float | None

    @property
    def span_ns(self) -> int:
        return max(0, self.end_ns - self.start_ns)

    @property
    def excess_ns(self) -> float:
        """How much longer it took than usual."""
        return max(0.0, self.span_ns - (self.usual_ns or 0.0))


def explain(
    spans: Sequence[Span], executor: str, queued: int, events: Iterable[Event], version_names: Sequence[str]
) -> tuple[SlowStage, ...]:
    """Each stage with what went on in it. `executor`: the model's, "inline", "polled" or "thread". `queued`: how many
    requests waited before this one. `events`: whatever happened around that time. `version_names`: "model@version" by
    place."""
    excess_ns = sum(span.excess_ns for span in spans)
    known = tuple(events)
    return tuple(
        SlowStage(
            span.name,
            span.start_ns,
            span.span_ns,
            span.usual_ns,
            late=excess_ns > 0 and span.excess_ns >= LATE_SHARE_MIN * excess_ns,
            causes=tuple(_causes(span, executor, queued, known, version_names)),
        )
        for span in spans
    )


def why(stages: Sequence[SlowStage], executor: str) -> str:
    """In words: the late stages, the latest first, and what went on in each."""
    late = [stage for stage in stages if stage.late]
    late.sort(key=lambda stage: (stage.usual_ns or 0.0) - stage.span_ns)
    if late:
        return "; ".join(_say_stage(stage, executor) for stage in late)
    longer = any(stage.span_ns > (stage.usual_ns or 0.0) for stage in stages)
    # Were it five of the six, one of them would have a fifth of it.
    return "every stage took a little longer than usual" if longer else "no stage took longer than usual"


def _say_stage(stage: SlowStage, executor: str) -> str:
    usual = "" if stage.usual_ns is None else f" (usually {say_ns(stage.usual_ns)})"
    perhaps = PERHAPS.get((stage.name, executor))
    nothing = f"nothing else was seen then, perhaps {perhaps}" if perhaps else "nothing else was seen then"
    return f"{stage.name} {say_ns(stage.span_ns)}{usual}: {', '.join(cause.text for cause in stage.causes) or nothing}"


def _causes(
    span: Span, executor: str, queued: int, events: Sequence[Event], version_names: Sequence[str]
) -> Iterable[Cause]:
    if span.name == "queue" and queued:
        yield Cause("queued", queued, span.span_ns, f"queued behind {queued}")
    groups: dict[tuple[EventKind, int], list[Event]] = {}
    for event in events:
        if _overlap_ns(event, span) > 0 and span.name in _stages_of(event.kind, executor):
            # One load after another are two things; the rest is one, seen in several looks.
            part = event.start_ns if event.kind in (EventKind.RELOAD, EventKind.LOAD_FAILED) else 0
            groups.setdefault((event.kind, part), []).append(event)
    causes = []
    for (kind, _), seen in groups.items():
        amount = sum(event.amount for event in seen)
        if _matters(kind, amount, span):
            overlap_ns = sum(_overlap_ns(event, span) for event in seen)
            causes.append(Cause(kind.name.lower(), amount, overlap_ns, _say(kind, seen, overlap_ns, version_names)))
    yield from sorted(causes, key=lambda cause: -cause.overlap_ns)


def _overlap_ns(event: Event, span: Span) -> int:
    return min(event.end_ns, span.end_ns) - max(event.start_ns, span.start_ns)


def _stages_of(kind: EventKind, executor: str) -> frozenset[str]:
    """The stages that it can hold up."""
    on_loop = executor != "thread"
    if kind is EventKind.OTHERS_PREEMPTED:
        return frozenset({"compute"}) if on_loop else LANE_STAGES
    if kind is EventKind.LOOP_LAG and executor == "inline":
        # While the model itself runs on the loop, the loop is late because of it.
        return LOOP_STAGES
    if kind in _OF_THE_LOOP and not on_loop:
        return LOOP_STAGES
    return EVERY_STAGE


def _matters(kind: EventKind, amount: int, span: Span) -> bool:
    """Whether there was enough of it to have made this stage late."""
    enough_ns = AMOUNT_SHARE_MIN * span.excess_ns
    if kind is EventKind.MINOR_FAULTS:
        return amount * MINOR_FAULT_NS >= enough_ns
    return amount >= enough_ns if kind in _AMOUNT_IS_NS else True


def _say(kind: EventKind, seen: Sequence[Event], overlap_ns: int, version_names: Sequence[str]) -> str:
    amount, overlap = sum(event.amount for event in seen), say_ns(overlap_ns)
    within = f"within {say_ns(max(event.end_ns for event in seen) - min(event.start_ns for event in seen))}"
    live = version_names[amount] if amount < len(version_names) else "no version"
    match kind:
        case EventKind.GC:
            text = f"the garbage collector ran for {overlap} of it"
        case EventKind.LOOP_LAG:
            text = f"the core's loop stood still for {overlap} of it"
        case EventKind.RELOAD:
            text = f"a load, after which {live} was live, went on for {overlap} of it"
        case EventKind.LOAD_FAILED:
            text = f"a load that was refused, {live} stayed live, went on for {overlap} of it"
        case EventKind.LOOP_PREEMPTED:
            text = f"the loop's thread was pushed off its CPU {_times(amount)} {within}"
        case EventKind.OTHERS_PREEMPTED:
            text = f"other threads of the core were pushed off their CPU {_times(amount)} {within}"
        case EventKind.RUN_QUEUE:
            text = f"the loop's thread waited {say_ns(amount)} for a CPU {within}"
        case EventKind.MINOR_FAULTS:
            text = f"{amount:,} pages were touched for the first time {within}"
        case EventKind.MAJOR_FAULTS:
            text = f"{amount:,} pages were read from a disk {within}"
        case EventKind.THROTTLED:
            text = f"the control group was throttled for {say_ns(amount)} {within}"
        case EventKind.STOLEN:
            text = f"the hypervisor took the CPU away for {say_ns(amount)} {within}"
    return text


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def say_ns(span_ns: float) -> str:
    """A span of time with three digits and its unit."""
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if span_ns >= size:
            value = span_ns / size
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"
    return f"{span_ns / 1000:.3g} µs"
