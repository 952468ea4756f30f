"""Three pictures of a run: the percentile spectrum, latency over time, and where the time went. Axes are in µs.

Drawn with matplotlib's objects, never with pyplot, which keeps figures in module state. What stands for ink is
replaced by the page's own text colour in the report, so one drawing serves light and dark.
"""

import io
import textwrap
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter

from tickpath.loadtest.latency import P50, P99, rank_of
from tickpath.loadtest.report.figures import Figures
from tickpath.loadtest.report.text import microseconds, subject
from tickpath.loadtest.run import NANOSECONDS, OK, Run

Draw = Callable[[Axes], None]

INK: Final = "#1b2430"
BLUE: Final = "#3b82f6"
ORANGE: Final = "#f08c00"
RED: Final = "#e5484d"
GREY: Final = "#8b8d98"
SERIES: Final = (BLUE, ORANGE, "#12a594", "#8e4ec6", RED, GREY)

# Narrow, so that letters stay readable where a phone shrinks the picture to its width.
WIDTH_IN: Final = 5.4
HEIGHT_IN: Final = 3.2
PNG_DPI: Final = 160
# Of a line of the PNG's title, so that a long schedule is not cut off at both sides.
TITLE_LETTERS: Final = 56

# As many as a picture of this width can show.
SPECTRUM_POINTS: Final = 400
TIME_BINS: Final = 120
# A bin of fewer has no percentiles to speak of.
BIN_REQUESTS: Final = 20
# Above this, powers of ten alone are enough to name.
WIDE: Final = 1000

STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tickpath",  # ids, and so the file, are the same for the same numbers
    "font.size": 10,
    "text.parse_math": False,  # a file may be called $x$
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.alpha": 0.15,
    "grid.color": INK,
    "legend.frameon": False,
    "savefig.transparent": True,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


def spectrum_svg(all_figures: Sequence[Figures]) -> str:
    """The percentile spectrum of one run (corrected and not), or the corrected ones of several."""
    return _svg(_spectrum(all_figures))


def time_svg(figures: Figures) -> str:
    """Latency over the run."""
    return _svg(_over_time(figures.run))


def stages_svg(figures: Figures) -> str:
    """Where the mean latency went."""
    return _svg(_stages(figures))


def write_png(figures: Figures, path: Path) -> None:
    """All three of one run, below each other."""
    with matplotlib.rc_context(STYLE):
        picture(figures).savefig(path, format="png", dpi=PNG_DPI, transparent=False)


def picture(figures: Figures) -> Figure:
    """What a PNG shows: beside the plots, what was asked and why it is INVALID, where it is."""
    # Without an answer there is nothing to plot, and the title tells why.
    draws = (_spectrum([figures]), _over_time(figures.run), _stages(figures)) if figures.latency else ()
    figure = Figure((WIDTH_IN, max(len(draws), 1) * HEIGHT_IN), layout="constrained")
    for number, draw in enumerate(draws, 1):
        draw(figure.add_subplot(len(draws), 1, number))
    lines = [subject(figures), figures.run.schedule, *(f"INVALID: {reason}" for reason in figures.invalid)]
    title = "\n".join(part for line in lines for part in textwrap.wrap(line, TITLE_LETTERS))
    figure.suptitle(title, color=RED if figures.invalid else INK, fontsize=10)
    return figure


def _svg(draw: Draw) -> str:
    """An <svg> element to stand in a page."""
    with matplotlib.rc_context(STYLE), io.StringIO() as file:
        figure = Figure((WIDTH_IN, HEIGHT_IN), layout="constrained")
        draw(figure.subplots())
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        text = file.getvalue()
    return text[text.index("<svg") :].replace(INK, "currentColor")


def _spectrum(all_figures: Sequence[Figures]) -> Draw:
    lines = {figures.run.schedule: figures.run.latency_ns() for figures in all_figures}
    if len(all_figures) == 1:
        run = all_figures[0].run
        lines = {"from the intended send: what a user waits": run.latency_ns()}
        lines["from the real send: hides waiting"] = run.uncorrected_ns()
    lines = {label: spans_ns for label, spans_ns in lines.items() if len(spans_ns)}

    def draw(axes: Axes) -> None:
        # Of one run the second line hides most of the first; of several runs the dashes only tell more than six apart.
        dashed_from = 1 if len(all_figures) == 1 else len(SERIES)
        for place, (label, spans_ns) in enumerate(lines.items()):
            style = "--" if place // dashed_from % 2 else "-"
            _spectrum_line(axes, spans_ns, label, SERIES[place % len(SERIES)], style)
        _nines_axis(axes, [len(spans_ns) for spans_ns in lines.values()])
        _latency_axis(axes)
        axes.set_title("Percentiles of latency", loc="left")
        axes.legend(fontsize=9 if len(lines) <= len(SERIES) else 6, ncols=1 if len(lines) <= 2 * len(SERIES) else 2)

    return draw


def _spectrum_line(axes: Axes, spans_ns: NANOSECONDS, label: str, colour: str, style: str) -> None:
    """Of n samples that ascend, the one of rank r is the percentile up to r / n, which 1 in n / (n - r) exceeds. The
    largest is exceeded by none: it ends the line, at 1 in n."""
    ascending_us, count = np.sort(spans_ns) / 1000, len(spans_ns)
    beyond = np.unique(np.geomspace(1, count, SPECTRUM_POINTS).astype(np.int64))[::-1]
    values_us = ascending_us[np.maximum(count - beyond - 1, 0)]
    axes.step([*count / beyond, count], [*values_us, ascending_us[-1]], style, where="pre", color=colour, label=label)
    axes.plot(count, ascending_us[-1], "o", color=colour, markersize=4)


def _nines_axis(axes: Axes, counts: Sequence[int]) -> None:
    """Each step to the right is ten times as rare."""
    end, some_run = max(*counts, 10) * 1.3, "" if len(set(counts)) == 1 else " in some run"
    nines = {10**power: f"{100 - 100 / 10**power:.10g}%" for power in range(1, 9)}
    ticks = {one_in: label for one_in, label in ({2: "50%"} | nines).items() if one_in < end}
    axes.set_xscale("log")
    axes.set_xlim(1, end)
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"percentile (shaded: fewer than 10 requests beyond{some_run})")
    axes.axvspan(max(min(counts) / 10, 1), end, color=INK, alpha=0.06, linewidth=0)


def _over_time(run: Run) -> Draw:
    """In bins of equal length, by the time at which requests were meant to leave."""
    rows = run.rows[run.rows["intended_ns"] > 0]
    at_s = (rows["intended_ns"] - rows["intended_ns"].min()) / 1e9
    edges_s = np.linspace(0, max(float(at_s.max()), 1e-9), max(min(TIME_BINS, len(rows) // BIN_REQUESTS), 1) + 1)
    bins = np.clip(np.searchsorted(edges_s, at_s, "right") - 1, 0, len(edges_s) - 2)
    answered = rows["code"] == OK
    latency_us = (rows["done_ns"] - rows["intended_ns"]) / 1000
    middle_s = (edges_s[:-1] + edges_s[1:]) / 2
    binned_us = [np.sort(latency_us[answered & (bins == place)]) for place in range(len(middle_s))]

    def draw(axes: Axes) -> None:
        for label, quantile, style, colour, width in (
            # A slice between two empty ones has no line, but a dot.
            ("p50", P50, ".-", BLUE, 2),
            ("p99", P99, "-", ORANGE, 1.2),
            # Dots alone, since a slice of fewer than 100 has its p99 there too.
            ("slowest", 1, ".", RED, 0),
        ):
            found_us = [each[rank_of(len(each), Fraction(quantile)) - 1] if len(each) else np.nan for each in binned_us]
            axes.plot(middle_s, found_us, style, color=colour, linewidth=width, markersize=3.5, label=label)
        _latency_axis(axes)
        _mark_failed(axes, middle_s[np.unique(bins[~answered])])
        axes.set_xlim(0, edges_s[-1])
        axes.set_xlabel("intended send time, seconds into the run")
        axes.set_title("Latency over time", loc="left", pad=22)
        axes.legend(loc="lower left", ncols=4, bbox_to_anchor=(-0.02, 0.97), fontsize=9, handlelength=1)

    return draw


def _mark_failed(axes: Axes, at_s: "np.typing.NDArray[np.float64]") -> None:
    if len(at_s):
        transform = axes.get_xaxis_transform()
        axes.plot(at_s, np.full(len(at_s), 0.03), "x", color=RED, transform=transform, label="no prediction")


def _stages(figures: Figures) -> Draw:
    """A staircase: each stage begins where the one before ends, and the last line is all of them."""
    means_us = {name: mean_ns / 1000 for name, mean_ns in figures.stage_means_ns.items()}
    total_us = sum(means_us.values())
    begins_us = dict(zip(means_us, np.cumsum([0, *means_us.values()]), strict=False))

    def draw(axes: Axes) -> None:
        for name, value_us, begin_us, colour in (
            *((name, means_us[name], begins_us[name], BLUE) for name in means_us),
            ("latency", total_us, 0.0, GREY),
        ):
            axes.barh(name, value_us, left=begin_us, color=colour)
            share = value_us / total_us
            label = f"{microseconds(value_us * 1000)}  ({'<1%' if 0 < share < 0.005 else f'{share:.0%}'})"
            axes.annotate(label, (begin_us + value_us, name), (4, 0), textcoords="offset points", va="center")
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, total_us * 1.42)  # room for the label of the last
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
        axes.set_xlabel("mean, µs")
        axes.set_title("Where the mean latency went", loc="left")

    return draw


def _latency_axis(axes: Axes) -> None:
    """At least a factor of two is shown, so that noise doesn't look like a mountain range."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    margin = max(2 / (high / low), 1) ** 0.5
    axes.set_ylim(low / margin, high * margin)
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if high / low < WIDE else (1,)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("latency, µs")
