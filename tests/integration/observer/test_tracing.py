"""Requests as OpenTelemetry traces: what a collector on a real socket gets, and what one that fails costs."""

import os
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.certificates import Authority
from tests.collector import collecting, values
from tests.integration.observer.observing import Observing, observing, write
from tests.serving import serve, write_zoo
from tests.waiting import wait_until

from tickpath.client import Client
from tickpath.observe.reader import RecordReader
from tickpath.observe.records import EventKind, RecordWriter
from tickpath.observe.settings import TraceSettings
from tickpath.observe.tracing.picking import sampled
from tickpath.wire import STAGES

COUNT = 300
ROW = np.ones((1, 64), np.float32)
EXPORTED, DROPPED = "tickpath_traces_exported_total", "tickpath_traces_dropped_total"
ALL: dict[str, Any] = {"sample": 1.0, "slow": "off"}


def counted(observer: Observing) -> tuple[float, float]:
    """Exported, dropped."""
    scrape = observer.scrape()
    return scrape.value(EXPORTED), scrape.value(DROPPED)


def until_counted(observer: Observing, exported: int, dropped: int) -> None:
    wait_until(lambda: counted(observer) == (exported, dropped), f"{exported} exported and {dropped} dropped")


def ask(writer: RecordWriter, ids: range, first_ns: int | None = None, session: int = 1) -> None:
    """Requests of 15 µs that begin now."""
    for number in ids:
        first = time.monotonic_ns() if first_ns is None else first_ns
        stamps = (first, first + 1_000, first + 3_000, first + 6_000, first + 10_000, first + 12_000)
        writer.answered(0, 0, 1, 1, number, stamps, first + 15_000, 0, session=session, queued=2)


def test_a_servers_requests_have_the_stamps_that_their_clients_were_told(tmp_path: Path) -> None:
    with collecting() as collector:
        trace = {"endpoint": collector.url, "sample": 1, "slow": "off"}
        models = write_zoo(tmp_path, "mlp")
        with (
            serve(tmp_path, models, observer_port=0, server_name="here", trace=trace) as server,
            Client(server.address) as client,
        ):
            before_ns = time.time_ns()
            answers = [client.infer("mlp", ROW, event_time_ns=7) for _ in range(5)]
            after_ns = time.time_ns()
            wait_until(lambda: len(collector.traces()) == 5, "five traces")
        told = {answer.stamps[0]: answer.stamps for answer in answers}
        (resource,) = {str(values(each.resource_spans[0].resource.attributes)) for each in collector.requests}
    assert all(text in resource for text in ("'tickpath.server_name': 'here'", "'service.name': 'tickpath'"))
    for whole, *stages in collector.traces().values():
        facts = values(whole.attributes)
        stamps_ns = list(told.pop(facts["tickpath.first_byte_ns"]))
        offset_ns = whole.start_time_unix_nano - stamps_ns[0]
        assert [span.name for span in stages] == [*STAGES, "send"]
        assert [span.start_time_unix_nano - offset_ns for span in stages] == stamps_ns
        assert [span.end_time_unix_nano for span in stages] == [
            *(span.start_time_unix_nano for span in stages[1:]),
            whole.end_time_unix_nano,
        ]
        assert before_ns < whole.start_time_unix_nano < whole.end_time_unix_nano
        assert stages[-1].start_time_unix_nano < after_ns
        assert {span.parent_span_id for span in stages} == {whole.span_id}
        assert not whole.parent_span_id
        assert len({span.span_id for span in (whole, *stages)}) == 7
        told_of = {"model": "mlp", "version": "1", "rows": 1, "queued": 0, "event_time_ns": "7", "picked": "sample"}
        assert {f"tickpath.{name}": value for name, value in told_of.items()}.items() <= facts.items()
        assert facts["tickpath.session"] > 0
    assert told == {}


def test_what_held_a_request_up_is_an_event_of_its_stage(writer: RecordWriter) -> None:
    with collecting() as collector, observing(writer, trace=TraceSettings(collector.url, **ALL)) as observer:
        first = time.monotonic_ns()
        writer.event(EventKind.GC, first + 3_000, first + 5_000, 9)
        writer.event(EventKind.RELOAD, first + 6_000, first + 9_000, 1)
        ask(writer, range(2**64 - 1, 2**64), first)
        wait_until(collector.traces, "a trace")
        until_counted(observer, 1, 0)
        ((whole, *stages),) = collector.traces().values()
    assert values(whole.attributes)["tickpath.request_id"] == str(2**64 - 1)
    # A busy machine has others beside them.
    texts = {(span.name, event.name): values(event.attributes)["text"] for span in stages for event in span.events}
    assert texts["queue", "queued"] == "queued behind 2"
    assert texts["input", "gc"] == "the garbage collector ran for 2 µs of it"
    assert texts["compute", "reload"] == "a load, after which slow@2 was live, went on for 3 µs of it"
    assert "the garbage collector ran" in values(whole.attributes)["tickpath.why"]


def test_a_share_is_the_same_requests_each_time_and_grows_by_more(writer: RecordWriter) -> None:
    ask(writer, range(COUNT))
    records = RecordReader(writer.fd).take()
    came: list[set[str]] = []
    for share in (0.1, 0.1, 0.3):
        count = int(sampled(records, share).sum())
        # Five standard deviations of the binomial.
        assert abs(count - share * COUNT) < 5 * (COUNT * share * (1 - share)) ** 0.5
        with collecting() as collector:
            trace = TraceSettings(collector.url, sample=share, slow="off")
            with observing(writer, trace=trace) as observer:
                until_counted(observer, count, 0)
            came.append(collector.request_ids())
    assert came[0] == came[1]
    assert came[0] < came[2]


@pytest.mark.parametrize("slow", ["1", "p99.9"])
def test_slow_ones_come_and_usual_ones_do_not(writer: RecordWriter, slow: str) -> None:
    with collecting() as collector:
        trace = TraceSettings(collector.url, slow=slow)
        with observing(writer, trace=trace) as observer:
            for total in (4_000, 8_000):
                write(writer, 0, [15_000] * 4_000)
                assert observer.scrape().value("tickpath_request_latency_samples", model="fast") == total
            duration_ns = 2_000_000

            def one_came() -> bool:
                """A limit is found twice a second, by what was before: each one takes longer than all before it."""
                nonlocal duration_ns
                duration_ns += 200_000
                first = time.monotonic_ns() - duration_ns
                stamps = (first, first + 1_000, first + 3_000, first + 6_000, first + 1_900_000, first + 1_950_000)
                writer.answered(0, 0, 1, 1, 77, stamps, first + duration_ns, 0)
                return bool(collector.traces())

            wait_until(one_came, "a slow one")
        assert collector.request_ids() == {"77"}
        assert {values(whole.attributes)["tickpath.picked"] for whole, *_ in collector.traces().values()} == {"slow"}


def test_a_collector_that_comes_back_gets_what_waited(writer: RecordWriter) -> None:
    with collecting() as collector:
        port = collector.port
        trace = TraceSettings(collector.url, **ALL)
        with observing(writer, trace=trace) as observer:
            ask(writer, range(1, 4))
            wait_until(lambda: len(collector.traces()) == 3, "the first ones")
            collector.answering.clear()
            ask(writer, range(4, 7))
            assert collector.asked.wait(30)
            collector.status = 503
            collector.answering.set()
            wait_until(lambda: len(collector.headers) > 1, "a refusal")
            collector.status = 200
            wait_until(lambda: collector.request_ids() >= {"4", "5", "6"}, "those that were refused")
            assert counted(observer)[1] == 0
    with observing(writer, trace=trace) as observer:
        ask(writer, range(7, 10))
        assert observer.process.stderr is not None
        assert f"traces to {trace.endpoint}: can't reach it" in observer.process.stderr.readline()
        with collecting(port) as collector:
            wait_until(lambda: collector.request_ids() >= {"7", "8", "9"}, "those that waited")
            assert counted(observer)[1] == 0


def test_one_that_refuses_costs_traces_and_a_line(writer: RecordWriter) -> None:
    with collecting() as collector, observing(writer, trace=TraceSettings(collector.url, **ALL)) as observer:
        assert counted(observer) == (0, 0)
        collector.status = 500
        for number in range(1, 4):
            ask(writer, range(number, number + 1))
            until_counted(observer, 0, number)
        collector.status = 200
        ask(writer, range(4, 5))
        until_counted(observer, 1, 3)
        observer.process.terminate()
        said = observer.process.communicate()[1]
    assert said.count("\n") == 1
    assert "500" in said
    assert collector.url in said


def test_one_that_hangs_delays_no_read(writer: RecordWriter) -> None:
    with collecting() as collector, observing(writer, trace=TraceSettings(collector.url, **ALL)) as observer:
        collector.answering.clear()
        ask(writer, range(1))
        assert collector.asked.wait(30)
        sent = 1
        while not counted(observer)[1]:
            ask(writer, range(sent, sent + COUNT))
            sent += COUNT
        scrape = observer.scrape()
        assert scrape.value("tickpath_records_lost_total") == 0
        assert sum(scrape.value(name) for name in (EXPORTED, DROPPED)) < sent
        observer.process.terminate()
        assert observer.process.wait(20) == 0


def test_headers_are_those_of_the_file_now_and_nothing_of_it_is_said(writer: RecordWriter, tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("# ours\nAuthorization: Bearer one\n\nX-Scope: desk\n")
    with collecting() as collector:
        trace = TraceSettings(collector.url, headers_file=str(file), **ALL)
        with observing(writer, trace=trace) as observer:
            ask(writer, range(1, 2))
            wait_until(collector.traces, "a trace")
            file.write_text("Authorization Bearer two\n")
            ask(writer, range(2, 3))
            until_counted(observer, 1, 1)
            file.write_text("Authorization: Bearer two\n")
            ask(writer, range(3, 4))
            until_counted(observer, 2, 1)
            observer.process.terminate()
            said = observer.process.communicate()[1]
    came = [(headers["Authorization"], headers.get("X-Scope")) for headers in collector.headers]
    assert came == [("Bearer one", "desk"), ("Bearer two", None)]
    assert "line 1" in said
    assert "two" not in said


def test_over_tls_the_endpoint_must_show_who_it_is(writer: RecordWriter, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("collector", "127.0.0.1")
    with collecting(certificate=certificate) as collector:
        trace = TraceSettings(collector.url, **ALL)
        with observing(writer, trace=msgspec.structs.replace(trace, ca=str(authority.path))):
            ask(writer, range(1, 2))
            wait_until(lambda: collector.request_ids() == {"1"}, "a trace")
        other = Authority(tmp_path, "other")
        with observing(writer, trace=msgspec.structs.replace(trace, ca=str(other.path))) as observer:
            ask(writer, range(2, 3))
            until_counted(observer, 0, 2)  # an observer anew reads what lies there, too
        assert collector.request_ids() == {"1"}


def test_counts_outlive_the_observer(writer: RecordWriter) -> None:
    tally = os.memfd_create("tally")
    with collecting() as collector:
        trace = TraceSettings(collector.url, **ALL)
        with observing(writer, trace=trace, tally_fd=tally) as observer:
            ask(writer, range(3))
            until_counted(observer, 3, 0)
        with observing(writer, tally_fd=tally) as observer:
            assert counted(observer) == (3, 0)
    os.close(tally)


def test_without_an_endpoint_nothing_of_it_is_loaded(writer: RecordWriter, observer: Observing) -> None:
    assert counted(observer) == (0, 0)
    assert not has_messages(observer)
    with collecting() as collector, observing(writer, trace=TraceSettings(collector.url)) as other:
        assert has_messages(other)


def has_messages(observer: Observing) -> bool:
    """Whether protobuf's library, without which no trace leaves, is in its memory."""
    return "google/_upb/" in Path(f"/proc/{observer.process.pid}/maps").read_text()
