"""Why a request was slow: the stage that was late, and what overlapped it in time."""

import pytest

from tickpath.observe.causes import EVERY_STAGE, Span, explain, say_ns, why
from tickpath.observe.records import Event, EventKind
from tickpath.observe.schema import SlowStage
from tickpath.observe.tally import REQUEST, SPANS

NAMES = ("mlp@1", "mlp@2")
MS = 1_000_000
USUAL_NS = 100_000.0
EXECUTORS = ("inline", "polled", "thread")


def spans(**late_ns: int) -> list[Span]:
    """Stages one after another from 0 on, each of 100 µs, as usual, but for these."""
    made, start_ns = [], 0
    for name in SPANS[:REQUEST]:
        span_ns = late_ns.get(name, int(USUAL_NS))
        made.append(Span(name, start_ns, start_ns + span_ns, USUAL_NS))
        start_ns += span_ns
    return made


def late(stages: tuple[SlowStage, ...]) -> list[str]:
    return [stage.name for stage in stages if stage.late]


def kinds(stages: tuple[SlowStage, ...], name: str) -> list[str]:
    return next([cause.kind for cause in stage.causes] for stage in stages if stage.name == name)


def during(made: list[Span], name: str, kind: EventKind, amount: int = 1) -> Event:
    """An event in the middle of a stage."""
    span = next(span for span in made if span.name == name)
    quarter_ns = span.span_ns // 4
    return Event(kind, span.start_ns + quarter_ns, span.end_ns - quarter_ns, amount)


@pytest.mark.parametrize("name", SPANS[:REQUEST])
def test_the_stage_that_took_longer_than_usual_is_late(name: str) -> None:
    stages = explain(spans(**{name: 5 * MS}), "inline", 0, [], NAMES)
    assert late(stages) == [name]
    assert why(stages, "inline").startswith(f"{name} 5 ms (usually 100 µs): nothing else was seen then")


def test_two_stages_may_share_the_blame_and_the_later_comes_first() -> None:
    stages = explain(spans(queue=3 * MS, compute=4 * MS, send=MS // 2), "thread", 0, [], NAMES)
    assert late(stages) == ["queue", "compute"]
    assert why(stages, "thread").index("compute 4 ms") < why(stages, "thread").index("queue 3 ms")


def test_nothing_is_late_where_all_is_as_usual() -> None:
    stages = explain(spans(), "inline", 0, [], NAMES)
    assert (late(stages), why(stages, "inline")) == ([], "no stage took longer than usual")


def test_a_little_of_every_stage_is_told_as_that() -> None:
    stages = explain(spans(**dict.fromkeys(SPANS[:REQUEST], MS)), "inline", 0, [], NAMES)
    assert (late(stages), why(stages, "inline")) == ([], "every stage took a little longer than usual")


def test_without_a_usual_time_the_longest_stage_is_late() -> None:
    unknown = [Span(span.name, span.start_ns, span.end_ns, None) for span in spans(compute=5 * MS)]
    stages = explain(unknown, "inline", 0, [], NAMES)
    assert late(stages) == ["compute"]
    assert why(stages, "inline") == "compute 5 ms: nothing else was seen then"


def test_who_waited_behind_others_is_told_so() -> None:
    stages = explain(spans(queue=5 * MS), "thread", 14, [], NAMES)
    assert kinds(stages, "queue") == ["queued"]
    assert why(stages, "thread") == "queue 5 ms (usually 100 µs): queued behind 14"


@pytest.mark.parametrize(
    ("executor", "perhaps"),
    [("inline", "requests before it in its session"), ("polled", "all its slots"), ("thread", "the model's thread")],
)
def test_what_a_late_queue_perhaps_means_goes_by_the_executor(executor: str, perhaps: str) -> None:
    stages = explain(spans(queue=5 * MS), executor, 0, [], NAMES)
    assert perhaps in why(stages, executor)


@pytest.mark.parametrize("kind", EventKind)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_event_counts_in_the_stage_that_it_overlaps_and_in_no_other(kind: EventKind, executor: str) -> None:
    for name in SPANS[:REQUEST]:
        made = spans(**{name: 5 * MS})
        stages = explain(made, executor, 0, [during(made, name, kind, 2 * MS)], NAMES)
        found = {stage.name: [cause.kind for cause in stage.causes] for stage in stages if stage.causes}
        assert found in ({}, {name: [kind.name.lower()]})
        for stage in stages:
            assert all(cause.overlap_ns == MS * 5 // 2 and cause.text for cause in stage.causes)


@pytest.mark.parametrize("kind", EventKind)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_kind_can_hold_some_stage_up(kind: EventKind, executor: str) -> None:
    long = spans(**dict.fromkeys(EVERY_STAGE, 5 * MS))
    stages = explain(long, executor, 0, [Event(kind, 0, 100 * MS, 2 * MS)], NAMES)
    assert any(stage.causes for stage in stages)


def test_what_happened_before_or_after_is_not_named() -> None:
    made = spans(compute=5 * MS)
    events = [Event(EventKind.GC, -9 * MS, 0, 1), Event(EventKind.GC, made[-1].end_ns, made[-1].end_ns + MS, 1)]
    assert not any(stage.causes for stage in explain(made, "inline", 0, events, NAMES))


def test_a_loop_that_is_late_since_it_runs_the_model_is_no_cause_of_that() -> None:
    made = spans(compute=5 * MS)
    lag = [during(made, "compute", EventKind.LOOP_LAG)]
    assert kinds(explain(made, "inline", 0, lag, NAMES), "compute") == []
    assert kinds(explain(made, "thread", 0, lag, NAMES), "compute") == ["loop_lag"]


def test_the_loops_cpu_concerns_a_model_on_a_thread_only_where_the_loop_has_it() -> None:
    made = spans(compute=5 * MS, send=5 * MS)
    events = [during(made, name, EventKind.LOOP_PREEMPTED, 12) for name in ("compute", "send")]
    stages = explain(made, "thread", 0, events, NAMES)
    assert (kinds(stages, "compute"), kinds(stages, "send")) == ([], ["loop_preempted"])


def test_several_looks_at_one_thing_are_one_cause() -> None:
    made = spans(compute=60 * MS)
    looks = [Event(EventKind.LOOP_PREEMPTED, start * MS, (start + 20) * MS, 4) for start in (0, 20, 40)]
    (cause,) = next(stage.causes for stage in explain(made, "inline", 0, looks, NAMES) if stage.name == "compute")
    assert (cause.amount, cause.text) == (12, "the loop's thread was pushed off its CPU 12 times within 60 ms")


def test_what_is_too_little_to_matter_is_left_out() -> None:
    made = spans(compute=5 * MS)
    little = [
        during(made, "compute", EventKind.RUN_QUEUE, 1_000),
        during(made, "compute", EventKind.STOLEN, 1_000),
        during(made, "compute", EventKind.MINOR_FAULTS, 3),
    ]
    assert kinds(explain(made, "inline", 0, little, NAMES), "compute") == []
    much = [event._replace(amount=event.amount * 1_000) for event in little]
    assert sorted(kinds(explain(made, "inline", 0, much, NAMES), "compute")) == ["minor_faults", "run_queue", "stolen"]


def test_two_loads_are_two_causes_and_name_what_was_live_after_them() -> None:
    made = spans(compute=9 * MS)
    loads = [
        Event(EventKind.RELOAD, 0, 2 * MS, 1),
        Event(EventKind.LOAD_FAILED, 2 * MS, 8 * MS, 0),
        Event(EventKind.RELOAD, 8 * MS, 9 * MS, len(NAMES)),
    ]
    stages = explain(made, "inline", 0, loads, NAMES)
    assert kinds(stages, "compute") == ["load_failed", "reload", "reload"]
    told = why(stages, "inline")
    assert "after which mlp@2 was live" in told
    assert "refused, mlp@1 stayed live" in told
    assert "after which no version was live" in told


@pytest.mark.parametrize(
    ("span_ns", "text"),
    [(0, "0 µs"), (840, "0.84 µs"), (12_345, "12.3 µs"), (999_499, "999 µs"), (3_100_000, "3.1 ms"), (2e9, "2 s")],
)
def test_spans_of_time_have_three_digits_and_a_unit(span_ns: float, text: str) -> None:
    assert say_ns(span_ns) == text
