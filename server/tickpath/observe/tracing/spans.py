"""A request as spans: one for the whole and one for each of its stages, each with the very nanoseconds of its stamps.
Nothing of a request's inputs or outputs is known here."""

from collections.abc import Iterable
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from tickpath.observe.schema import Cause, SlowRequest, SlowStage

Attributes = dict[str, str | int | float | bool]

SPANS_A_REQUEST: Final = 7
"""The whole, and six stages."""


class SpanMaker:
    """Makes spans of one server's requests. `facts`: what tells it from others, attributes of all that it sends."""

    def __init__(self, facts: Attributes, version: str) -> None:
        self._resource = Resource.create(facts)
        self._scope = InstrumentationScope("tickpath", version)
        self._ids = RandomIdGenerator()

    def spans(self, request: SlowRequest, slow: bool, offset_ns: int) -> Iterable[ReadableSpan]:
        """The whole request first. `slow`: it is here because it was. `offset_ns`: what makes Unix time of its
        stamps."""
        trace_id = self._ids.generate_trace_id()
        whole = self._context(trace_id)
        first_ns = request.stamps_ns["first_byte_ns"]
        yield ReadableSpan(
            f"infer {request.model}",
            whole,
            resource=self._resource,
            attributes=_of_request(request, slow),
            kind=SpanKind.SERVER,
            start_time=first_ns + offset_ns,
            end_time=first_ns + request.duration_ns + offset_ns,
            instrumentation_scope=self._scope,
        )
        for stage in request.stages:
            start_ns = stage.start_ns + offset_ns
            yield ReadableSpan(
                stage.name,
                self._context(trace_id),
                parent=whole,
                resource=self._resource,
                attributes=_of_stage(stage),
                events=[_event(cause, start_ns) for cause in stage.causes],
                start_time=start_ns,
                end_time=start_ns + stage.span_ns,
                instrumentation_scope=self._scope,
            )

    def _context(self, trace_id: int) -> SpanContext:
        return SpanContext(trace_id, self._ids.generate_span_id(), False, TraceFlags(TraceFlags.SAMPLED))


def _of_request(request: SlowRequest, slow: bool) -> Attributes:
    attributes: Attributes = {
        "tickpath.model": request.model,
        "tickpath.version": request.version,
        "tickpath.executor": request.executor,
        "tickpath.bucket": request.bucket,
        "tickpath.rows": request.rows,
        # Text, since a client may choose numbers that no signed one holds.
        "tickpath.request_id": request.id,
        "tickpath.queued": request.queued,
        "tickpath.picked": "slow" if slow else "sample",
        "tickpath.first_byte_ns": request.stamps_ns["first_byte_ns"],
        "tickpath.why": request.why,
    }
    if request.session is not None:
        attributes["tickpath.session"] = request.session
    if request.event_time_ns != "0":
        attributes["tickpath.event_time_ns"] = request.event_time_ns
    return attributes


def _of_stage(stage: SlowStage) -> Attributes:
    attributes: Attributes = {"tickpath.late": stage.late}
    if stage.usual_ns is not None:
        attributes["tickpath.usual_ns"] = stage.usual_ns
    return attributes


def _event(cause: Cause, start_ns: int) -> Event:
    """It is known how much of the stage a cause took, and not from when on: its moment is the stage's first."""
    attributes: Attributes = {"text": cause.text, "amount": cause.amount, "overlap_ns": cause.overlap_ns}
    return Event(cause.kind, attributes, start_ns)
