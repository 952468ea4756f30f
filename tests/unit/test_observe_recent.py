"""What the observer remembers of the last minutes: the slowest requests, percentiles over time, events."""

import numpy as np
import pytest

from tickpath.observe.event_log import EventLog
from tickpath.observe.histograms import CELLS, Ints
from tickpath.observe.history import STEP_S, STEPS, History
from tickpath.observe.reader import RECORD_DTYPE, Records
from tickpath.observe.records import Event, EventKind, VersionDescription
from tickpath.observe.slow import COUNT_MAX, SlowQuery, parse_slow_query
from tickpath.observe.slowest import KEPT, KEPT_S, Slowest, duration_ns
from tickpath.observe.tally import REQUEST, SPANS

S = 10**9
ONE_MODEL = np.zeros(1, np.int64)


def version(name: str, label: str = "1") -> VersionDescription:
    return VersionDescription(name, label, "onnxruntime", "float32", "ab" * 32, "inline", (1,))


def records(durations_ns: list[int], place: int = 0) -> Records:
    made = np.zeros(len(durations_ns), RECORD_DTYPE)
    made["version"] = place
    made["first_byte_ns"] = S
    made["sent_ns"] = S + np.array(durations_ns)
    return made


def kept_ns(slowest: Slowest) -> list[int]:
    return sorted(duration_ns(slowest.records()).tolist(), reverse=True)


@pytest.mark.parametrize("batch", [1, 7, 100, 5000])
def test_the_slowest_of_a_second_are_kept_however_they_come(batch: int) -> None:
    durations_ns = np.random.default_rng(batch).permutation(5000).tolist()
    slowest = Slowest()
    for start in range(0, 5000, batch):
        slowest.add(records(durations_ns[start : start + batch]), ONE_MODEL, 1)
    assert kept_ns(slowest) == list(range(4999, 4999 - KEPT, -1))


def test_a_slow_model_does_not_hide_a_quick_one_and_versions_of_a_model_are_one() -> None:
    models = np.array([0, 1, 1])
    batch = np.concatenate([records([10**6] * 100, 0), records([100] * 50 + [101], 1), records([102], 2)])
    slowest = Slowest()
    slowest.add(batch, models, 1)
    found = slowest.records()
    assert (found["version"] == 0).sum() == KEPT
    assert sorted(duration_ns(found[found["version"] > 0]).tolist())[-2:] == [101, 102]
    assert len(found) == 2 * KEPT


def test_they_are_forgotten_after_minutes_and_never_more_than_their_number() -> None:
    slowest = Slowest()
    for second in range(1, 3 * KEPT_S):
        slowest.add(records([second] * 20), ONE_MODEL, second)
    assert len(slowest.records()) == KEPT_S * KEPT
    slowest.add(records([]), ONE_MODEL, 10 * KEPT_S)
    assert kept_ns(slowest) == []


def spans_ns(whole_ns: list[int]) -> Ints:
    """All of it in the stage compute."""
    spans = np.zeros((len(whole_ns), len(SPANS)), np.int64)
    spans[:, SPANS.index("compute")] = spans[:, REQUEST] = whole_ns
    return spans


def test_percentiles_are_of_each_step_and_of_the_last_minute() -> None:
    history = History()
    for step in range(3):
        for part in range(10):
            now_ns = (step * STEP_S * S) + part * S // 10
            history.read([version("mlp")], np.zeros(100, np.int64), spans_ns([1000 * (step + 1)] * 100), now_ns)
    mlp = history.of_models()["mlp"]
    assert [step.start_ns for step in mlp.steps] == [0, STEP_S * S, 2 * STEP_S * S]
    assert [step.percentiles.samples for step in mlp.steps] == [1000] * 3
    assert [step.max_ns for step in mlp.steps] == [1000, 2000, 3000]
    assert mlp.steps[2].percentiles.p50_ns == pytest.approx(3000, rel=0.01)
    assert mlp.window[REQUEST].sum() == 3000
    assert mlp.sums_ns[REQUEST] == 6_000_000
    history.read([version("mlp")], np.zeros(0, np.int64), spans_ns([]), 61 * S)
    mlp = history.of_models()["mlp"]
    assert mlp.window[REQUEST].sum() == 2000
    assert mlp.sums_ns[REQUEST] == 5_000_000


def test_history_is_bounded_and_steps_without_requests_have_no_point() -> None:
    history = History()
    for step in range(2 * STEPS):
        count = step % 2
        history.read([version("mlp")], np.zeros(count, np.int64), spans_ns([1000] * count), step * STEP_S * S)
    mlp = history.of_models()["mlp"]
    assert len(mlp.steps) == STEPS // 2
    assert mlp.steps[0].start_ns >= STEPS * STEP_S * S
    history.read([version("mlp")], np.zeros(0, np.int64), spans_ns([]), 100 * STEPS * STEP_S * S)
    assert history.of_models()["mlp"].steps == ()


def test_a_new_model_keeps_what_is_known_of_the_others_and_versions_are_one_line() -> None:
    history = History()
    history.read([version("mlp")], np.zeros(5, np.int64), spans_ns([1000] * 5), S)
    versions = [version("mlp"), version("gru"), version("mlp", "2")]
    history.read(versions, np.array([0, 1, 2]), spans_ns([1000, 9000, 1000]), 2 * S)
    models = history.of_models()
    assert {name: model.steps[0].percentiles.samples for name, model in models.items()} == {"mlp": 7, "gru": 1}
    assert models["gru"].window.shape == (len(SPANS), CELLS)


def test_events_are_taken_over_once_and_kept_as_long_as_requests() -> None:
    core: list[Event] = []
    outside: list[Event] = []
    log = EventLog(lambda start, end: [event for event in outside if start < event.end_ns <= end], lambda: core[-3:])
    for second in range(1, 6):
        core.append(Event(EventKind.GC, second * S - 10, second * S - 5, second))
        outside.append(Event(EventKind.STOLEN, (second - 1) * S, second * S, second))
        log.note(second * S)
    # Written down a second later than it ended.
    core.append(Event(EventKind.RELOAD, S, 5 * S - 1, 0))
    log.note(6 * S)
    found = log.events()
    assert len(found) == 11
    assert (found[:, 0] == EventKind.RELOAD).sum() == 1
    log.note((KEPT_S + 3) * S)
    assert sorted(log.events()[:, 2].tolist())[0] >= 3 * S - 5
    log.note((2 * KEPT_S + 3) * S)
    assert len(log.events()) == 0


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", SlowQuery()),
        ("count=1", SlowQuery(1)),
        (f"count={COUNT_MAX}&model=a%20b", SlowQuery(COUNT_MAX, "a b")),
        ("model=", SlowQuery(model="")),
    ],
)
def test_what_is_asked_of_slow(query: str, expected: SlowQuery) -> None:
    assert parse_slow_query(query) == expected


@pytest.mark.parametrize(
    "query",
    [
        "count=0",
        "count=-1",
        "count=",
        "count=201",
        "count=1000",
        "count=٣",
        "count=1e9",
        "count=" + "9" * 5000,
        "n=3",
        "x",
    ],
)
def test_what_slow_does_not_know_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_slow_query(query)
