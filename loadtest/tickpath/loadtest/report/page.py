"""Runs as one HTML page that needs nothing but itself: light and dark, on a desk and on a phone.

Whatever comes from outside (a target's name, an error's text) is escaped where it enters the page: in `_element`.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Final

from tickpath.loadtest.report.figures import Figures
from tickpath.loadtest.report.plots import spectrum_svg, stages_svg, time_svg
from tickpath.loadtest.report.text import (
    READING,
    THIN,
    cells,
    connections_line,
    ending_line,
    failed,
    gaps_line,
    interval_line,
    outcome_line,
    skipped_line,
    subject,
)
from tickpath.loadtest.series import NotRun

ROWS: Final = ("p50", "p90", "p95", "p99", "p99.9", "p99.99", "max", "mean", "samples")
OVERVIEW: Final = ("p50", "p99", "p99.9", "max")

SPECTRUM: Final = "How long the fastest 50%, 90%, 99% of requests took. Each step to the right is ten times as rare."
SPECTRA: Final = f"{SPECTRUM} Latency from the intended send, one line a run."
OVER_TIME: Final = (
    "Each point is a slice of the run; × marks one with requests that had no prediction. A peak that slopes down is a "
    "stall: those who came later waited less."
)
STAGES: Final = "Each stage begins where the one before ends; together they are the mean latency."


def page(all_figures: Sequence[Figures], not_run: NotRun | None = None) -> str:
    """The whole document."""
    css = files(__package__).joinpath("page.css").read_text("utf-8")
    title = subject(all_figures[0])
    sections = [_overview(all_figures)] if len(all_figures) > 1 else []
    sections += [_element("p", not_run.describe(), "invalid")] if not_run else []
    sections += map(_run, all_figures)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{_element('title', f'Load test: {title}')}\n<style>\n{css}</style>\n</head>\n<body>\n"
        f"{_element('p', 'Load test', 'faint')}{_element('h1', title)}\n{''.join(sections)}</body>\n</html>\n"
    )


def _overview(all_figures: Sequence[Figures]) -> str:
    rows = []
    for figures in all_figures:
        told = cells(figures.latency) if figures.latency else dict.fromkeys(OVERVIEW, "-")
        name = figures.run.schedule + (" INVALID" if figures.invalid else "")
        percentiles = (told[column] for column in OVERVIEW)
        rows.append((name, *percentiles, f"{figures.completed_hz:,.0f}", f"{failed(figures):,}"))
    table = _table(("latency, µs", *OVERVIEW, "answered/s", "failed"), rows)
    measured = [figures for figures in all_figures if figures.latency]
    return table + _element("p", THIN, "faint") + (_plot(spectrum_svg(measured), SPECTRA) if measured else "")


def _run(figures: Figures) -> str:
    lines = [connections_line(figures), outcome_line(figures), skipped_line(figures), ending_line(figures)]
    return "\n".join(
        [
            _element("h2", figures.run.schedule),
            *(_element("p", line) for line in lines if line),
            *(_whole_flags(_element("p", f"INVALID: {line}", "invalid")) for line in figures.invalid),
            *(_measured(figures) if figures.latency else ()),
        ]
    )


def _whole_flags(html: str) -> str:
    """A browser breaks lines at hyphens, also at those of --connections."""
    return re.sub(r"--[a-z][a-z-]*", r"<code>\g<0></code>", html)


def _measured(figures: Figures) -> Iterable[str]:
    assert figures.latency is not None
    told = {name: cells(summary) for name, summary in figures.distributions.items()}
    yield _tiles(figures, told["latency"])
    notes = (_element("p", line, "faint") for line in _notes(figures))
    yield (
        f'<div class="plots">{_plot(spectrum_svg([figures]), SPECTRUM)}{_plot(time_svg(figures), OVER_TIME)}'
        f"{_plot(stages_svg(figures), STAGES)}"
        f"<div>{_table(('µs', *told), [(row, *(column[row] for column in told.values())) for row in ROWS])}"
        f"{''.join(notes)}</div></div>"
    )


def _notes(figures: Figures) -> Sequence[str]:
    assert figures.latency is not None
    return READING, gaps_line(figures), interval_line(figures.latency), THIN


def _tiles(figures: Figures, told: dict[str, str]) -> str:
    named = {f"{name}, µs": told[name] for name in ("p50", "p99", "p99.9", "max")}
    named |= {"answered/s": f"{figures.completed_hz:,.0f}", "failed": f"{failed(figures):,}"}
    tiles = (
        f'<div class="tile">{_element("span", name, "faint")}{_element("b", value)}</div>'
        for name, value in named.items()
    )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _plot(svg: str, caption: str) -> str:
    return f'<figure class="plot">{svg}{_element("figcaption", caption)}</figure>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_line("th", head), *(_element("th", row[0]) + _line("td", row[1:]) for row in rows)]
    return f'<div class="scroll"><table>{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>\n'


def _line(tag: str, texts: Iterable[str]) -> str:
    return "".join(_element(tag, text) for text in texts)


def _element(tag: str, text: str, css_class: str = "") -> str:
    attribute = f' class="{css_class}"' if css_class else ""
    return f"<{tag}{attribute}>{escape(text)}</{tag}>"
