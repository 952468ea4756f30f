"""`tickpath slow`: the slowest requests, where their time went, and why."""

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from tickpath.console.tables import numbers
from tickpath.loadtest.report.text import microseconds
from tickpath.loadtest.report.whole import keep_whole
from tickpath.observe.schema import SlowReport, SlowRequest, SlowStage


def slow_tables(report: SlowReport, model: str | None) -> Iterator[object]:
    """A table with a line for each request, and below it a line that says why. `model`: whose they are, None: any."""
    if not report.requests:
        whose = "" if model is None else f" of model {model!r}"
        yield f"no request{whose} was answered in the last {report.kept_s} s"
        return
    yield _table(report)
    for number, request in enumerate(report.requests, 1):
        yield f"{number:>3}  {request.why}"


def _table(report: SlowReport) -> Table:
    stages = [stage.name for stage in report.requests[0].stages]
    table = numbers("Slow requests, µs", "took", "usually", *stages, "queued", "session", "ago, s", "model")
    table.columns[0].justify = "right"
    table.columns[-1].justify = "left"
    for number, request in enumerate(report.requests, 1):
        table.add_row(str(number), *_line(request))
    table.caption = "* these stages made it late; usually: the median of the last minute"
    return keep_whole(table)


def _line(request: SlowRequest) -> Iterator[str | Text]:
    yield microseconds(request.duration_ns)
    yield "" if request.usual_ns is None else microseconds(request.usual_ns)
    yield from map(_stage, request.stages)
    yield str(request.queued)
    yield "" if request.session is None else str(request.session)
    yield f"{request.age_s:.1f}"
    yield f"{request.model}@{request.version}"


def _stage(stage: SlowStage) -> str | Text:
    took = microseconds(stage.span_ns)
    return Text(f"{took}*", style="bold") if stage.late else took
