"""`tickpath top`: what an observer says, again and again, in a terminal."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tickpath.console.errors import ConsoleError
from tickpath.console.observer import ObserverAt, ask_status
from tickpath.console.tables import numbers
from tickpath.loadtest.report.text import microseconds
from tickpath.loadtest.report.whole import keep_whole
from tickpath.observe.schema import ModelStatus, Percentiles, Status

# The lines of the title, the heads, the rules and the caption.
LINES_AROUND: Final = 8
# Of fewer, p99.9 rests on less than ten.
THIN: Final = 10_000
SILENT_NS: Final = 1_000_000_000


@dataclass(frozen=True)
class Watching:
    """What to show: an observer, of one model or (None) all, every so many seconds."""

    observer: ObserverAt
    model: str | None
    every_s: float


def once(watching: Watching) -> RenderableType:
    """One look. Raises ConsoleError."""
    status = ask_status(watching.observer)
    return view(status, _models(status, watching), stages=True, ends=False)


def run(watching: Watching, console: Console) -> None:
    """Until Ctrl-C. Raises ConsoleError where nothing answers from the start."""
    status = ask_status(watching.observer)
    _models(status, watching)
    # `screen`: the terminal is afterwards as it was, however this ends.
    try:
        with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            _watch(status, watching, console, live)
    except KeyboardInterrupt:
        return


def _watch(status: Status, watching: Watching, console: Console, live: Live) -> NoReturn:
    asked_s, problem = time.monotonic(), ""
    while True:
        shown = _screen(status, watching, console.height, time.monotonic() - asked_s, problem)
        live.update(shown, refresh=True)
        time.sleep(watching.every_s)
        try:
            status, asked_s, problem = ask_status(watching.observer), time.monotonic(), ""
        except ConsoleError as error:
            problem = str(error)


def view(
    status: Status, models: Iterable[ModelStatus], stages: bool, ends: bool = True, left_out: int = 0
) -> RenderableType:
    """Head and table. Times in microseconds. `ends`: say how to end it. `left_out`: how many models have no room."""
    table = numbers("", "req/s", "p50", "p99", "p99.9", "in flight", "queued", "misses", "errors", "share")
    for model in models:
        table.add_row(*_model_row(model), style="bold")
        if stages:
            _add_stages(table, model)
    how = "; ctrl-C ends" if ends else ""
    table.caption = f"µs over the last {status.window_s} s, ~ thin: under {THIN:,} samples{how}"
    more = [Text(f"{left_out} more models, less busy than these: --model NAME shows one")] if left_out else []
    return Group(*_head(status), *more, keep_whole(table))


def _screen(status: Status, watching: Watching, height: int, age_s: float, problem: str) -> RenderableType:
    try:
        models = _models(status, watching)
    except ConsoleError as error:  # it was unloaded
        models, problem = (), problem or str(error)
    height -= bool(problem)
    lines = sum(1 + len(model.stages) for model in models)
    fitting = _busiest(models, max(height - LINES_AROUND, 1))
    left_out = len(models) - len(fitting)
    shown = view(status, fitting, stages=lines + LINES_AROUND <= height, left_out=left_out)
    if not problem:
        return shown
    return Group(Text(f"STALE, from {age_s:.0f} s ago: {problem}", style="bold red"), shown)


def _busiest(models: Sequence[ModelStatus], room: int) -> list[ModelStatus]:
    """As many as there is room for, in their order."""
    by_rate = sorted(range(len(models)), key=lambda place: -models[place].rate_per_s)
    return [models[place] for place in sorted(by_rate[:room])]


def _models(status: Status, watching: Watching) -> tuple[ModelStatus, ...]:
    models = tuple(model for model in status.models if watching.model in (None, model.name))
    if watching.model is not None and not models:
        names = ", ".join(model.name for model in status.models) or "none"
        raise ConsoleError(f"no model is called {watching.model!r}; served are: {names}")
    return models


def _head(status: Status) -> Iterator[Text]:
    core, sessions = status.core, status.sessions
    clock = time.strftime("%H:%M:%S", time.localtime(status.unix_ns / 1e9))
    quiet = "  quiet" if core.quiet else ""
    ticks = sum(model.warm_up for model in status.models)
    warm_up = f" (warm-up: {ticks:,} ticks)" if ticks else ""
    yield Text(
        f"core {core.pid} {core.state}{quiet}  {clock}  sessions {sessions.open}  feeds {status.feeds.open}{warm_up}  "
        f"loop lag {microseconds(core.loop_lag_ns)} µs at most  in the collector {microseconds(core.gc_pause_ns)} µs"
    )
    if core.state == "ended":
        yield Text(f"the core, process {core.pid}, has ended", style="bold red")
    elif core.silent_ns > SILENT_NS:
        yield Text(f"the core's loop has stood still for {core.silent_ns / 1e9:.1f} s", style="bold red")
    if core.records_lost:
        yield Text(f"{core.records_lost:,} requests are missing in the percentiles: the observer came too late")


def _model_row(model: ModelStatus) -> Iterator[str]:
    yield model.name if model.ready else f"{model.name} (not ready)"
    yield f"{model.rate_per_s:,.0f}"
    yield from _quantiles(model.latency)
    yield from (f"{count:,}" for count in (model.in_flight, model.queued, model.misses, model.errors))
    yield ""


def _add_stages(table: Table, model: ModelStatus) -> None:
    for stage in model.stages:
        table.add_row(f"  {stage.name}", "", *_quantiles(stage.percentiles), "", "", "", "", f"{stage.share:.1%}")


def _quantiles(found: Percentiles) -> Iterator[str]:
    if not found.samples:
        yield from ("", "", "")
        return
    thin = "~" if found.samples < THIN else ""
    yield from map(microseconds, (found.p50_ns, found.p99_ns))
    yield thin + microseconds(found.p999_ns)
