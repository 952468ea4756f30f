"""Tables for people. Times are in microseconds."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import Any, Final

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from tickpath.client import Prediction
from tickpath.console.calls import Answers
from tickpath.console.checking import Checked
from tickpath.console.tensors import describe
from tickpath.doctor.finding import Finding, Verdict
from tickpath.loadtest.latency import Summary, summarise
from tickpath.loadtest.report.text import microseconds
from tickpath.loadtest.report.whole import keep_whole
from tickpath.loadtest.stages import NANOSECONDS
from tickpath.server.proof import Refused
from tickpath.wire import ModelInfo

# Eight of the usual ones in a line.
BUCKETS_WIDTH: Final = 24
# Two such columns beside a check's name fit into a terminal.
FINDING_WIDTH: Final = 48
VERDICT_STYLES: Final = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red", Verdict.UNSEEN: "dim"}


def models_table(models: Iterable[ModelInfo]) -> Table:
    """One line a model."""
    table = texts("model", "version", "inputs", "outputs", "buckets")
    for model in models:
        table.add_row(
            model.name,
            model.version,
            "\n".join(describe(tensor) for tensor in model.inputs),
            "\n".join(describe(tensor) for tensor in model.outputs),
            fill(" ".join(map(str, model.buckets)), BUCKETS_WIDTH),
        )
    return keep_whole(table)


def check_table(checked: Iterable[Checked]) -> Table:
    """One line a version; of those that are refused, only that."""
    table = texts(
        "model", "version", "live", "engine", "inputs", "outputs", "buckets", "p50, µs", "verified by", "verdict"
    )
    for item in checked:
        live, found = "live" if item.live else "", item.verdict
        if isinstance(found, Refused):
            table.add_row(item.model, item.version, live, "", "", "", "", "", "", "refused")
            continue
        table.add_row(
            item.model,
            item.version,
            live,
            f"{found.runtime}, {found.precision}",
            "\n".join(describe(tensor) for tensor in found.inputs),
            "\n".join(describe(tensor) for tensor in found.outputs),
            fill(" ".join(map(str, found.buckets)), BUCKETS_WIDTH),
            fill(" ".join(map(microseconds, found.compute_ns)), 2 * BUCKETS_WIDTH),
            f"{found.verified.against}, {found.verified.rows} rows",
            "not run" if found.not_run else "proven",
        )
    return keep_whole(table)


def latency_table(title: str, spans_ns: dict[str, NANOSECONDS]) -> Table:
    """Percentiles, one line a distribution, with the sample count beside them and a mark where p99.9 is thin."""
    summaries = {name: summarise(values_ns) for name, values_ns in spans_ns.items()}
    table = numbers(title, "p50", "p90", "p99", "p99.9", "max", "samples")
    for name, summary in summaries.items():
        table.add_row(name, *_percentiles(summary), f"{summary.count:,}")
    if any(summary.thin for summary in summaries.values()):
        table.caption = "~ thin: under 10,000 samples, so p99.9 rests on fewer than ten"
    return keep_whole(table)


def stage_table(title: str, stages_ns: dict[str, NANOSECONDS], total: tuple[str, NANOSECONDS]) -> Table:
    """Where the time went. Percentiles do not add up, means do: the last line is measured apart from the others."""
    table = numbers(title, "p50", "p99", "mean")
    for name, values_ns in stages_ns.items():
        table.add_row(name, *_stage(values_ns))
    table.add_section()
    added_ns = sum(float(values_ns.mean()) for values_ns in stages_ns.values())
    table.add_row("all stages added", "", "", microseconds(added_ns))
    table.add_row(total[0], *_stage(total[1]))
    return keep_whole(table)


def answer_tables(answers: Answers) -> list[object]:
    """The outputs of a call, and where its time went."""
    parts: list[object] = _notes(answers.prediction)
    for name, array in answers.prediction.outputs.items():
        parts += [f"{name} {array.dtype.name}{list(array.shape)}", np.array2string(array, threshold=100), ""]
    total = ("client total", answers.total_ns)
    if len(answers.total_ns) == 1:
        return [*parts, "One request, not warmed up", _single_stage_table("Stages, µs", answers.stages_ns, total)]
    parts.append(latency_table("Latency of one request after another, µs", dict([total])))
    return [*parts, stage_table("Stages, µs", answers.stages_ns, total)]


def _notes(prediction: Prediction) -> list[object]:
    """What to know of an answer before acting on it."""
    age = f", {prediction.age_ns / 1e6:.3f} ms old" if prediction.age_ns else ""
    return [f"{' and '.join(str(flag.name) for flag in prediction.flags)}{age}", ""] if prediction.flags else []


def _single_stage_table(title: str, stages_ns: dict[str, NANOSECONDS], total: tuple[str, NANOSECONDS]) -> Table:
    table = numbers(title, "µs")
    for name, values_ns in stages_ns.items():
        table.add_row(name, microseconds(float(values_ns[0])))
    table.add_section()
    table.add_row(total[0], microseconds(float(total[1][0])))
    return keep_whole(table)


def _percentiles(summary: Summary) -> Sequence[str]:
    thin = "~" if summary.thin else ""
    spans_ns = (summary.p50_ns, summary.p90_ns, summary.p99_ns)
    return (*map(microseconds, spans_ns), thin + microseconds(summary.p999_ns), microseconds(summary.max_ns))


def _stage(values_ns: NANOSECONDS) -> Sequence[str]:
    summary = summarise(values_ns)
    return microseconds(summary.p50_ns), microseconds(summary.p99_ns), microseconds(summary.mean_ns)


def numbers(title: str, *columns: str) -> Table:
    """A table of numbers, each line with a name before them."""
    table = texts("", *columns)
    table.title, table.title_justify = title, "left"
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def texts(*columns: str) -> Table:
    """A table of words."""
    return Table(*columns, box=box.SIMPLE_HEAD, caption_justify="left")


def findings_table(findings: Iterable[Finding]) -> Table:
    """What was found of a host, one line a check."""
    table = texts("", "check", "found", "what to do")
    for finding in findings:
        mark = Text(finding.verdict, VERDICT_STYLES[finding.verdict])
        table.add_row(mark, finding.check, fill(finding.found, FINDING_WIDTH), fill(finding.remedy, FINDING_WIDTH))
    return keep_whole(table)


def status_table(models: Iterable[Mapping[str, Any]]) -> Table:
    """What a server has loaded, one line a model."""
    table = texts("model", "live", "before", "canary", "shadow", "loaded")
    for model in models:
        canary = f"{model['canary']} ({model['canary_share'] * 100:.6g} %)" if model["canary"] else ""
        loaded = " ".join(model["loaded"])
        table.add_row(
            model["name"], model["live"], model["previous"] or "", canary, model["shadow"] or "", fill(loaded, 40)
        )
    return keep_whole(table)
