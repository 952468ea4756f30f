"""Three pictures of a run: the percentile spectrum, latency over time, and where the time went. Axes are in µs.

Drawn with matplotlib's objects, never with pyplot, which keeps figures in module state. What stands for ink is
replaced by the page's own text colour in the report, so one drawing serves light and dark.
"""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tickpath.loadtest.report.figures import Figures
from tickpath.loadtest.report.text import microseconds
from tickpath.loadtest.run import NANOSECONDS, OK, Run

Draw = Callable[[Axes], None]

INK: Final = "#1b2430"
BLUE: Final = "#3b82f6"
ORANGE: Final = "#f08c00"
RED: Final = "#e5484d"
SERIES: Final = (BLUE, ORANGE, "#12a594", "#8e4ec6", RED, "#8b8d98")

# Narrow, so that letters stay readable where a phone shrinks the picture to its width.
WIDTH_IN: Final = 6.4
HEIGHT_IN: Final = 3.4
PNG_DPI: Final = 160

# As many as a picture of this width can show.
SPECTRUM_POINTS: Final = 400
TIME_BINS: Final = 120

STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tickpath",  # ids, and so the file, are the same for the same numbers
    "font.size": 10,
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


def write_png(path: Path, figures: Figures) -> None:
    """All three of one run, below each other."""
    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH_IN, 3 * HEIGHT_IN), layout="constrained")
        axes = figure.subplots(3)
        for place, draw in zip(axes, (_spectrum([figures]), _over_time(figures.run), _stages(figures)), strict=True):
            draw(place)
        figure.suptitle(f"{figures.run.model} at {figures.run.target}\n{figures.run.schedule}")
        figure.savefig(path, format="png", dpi=PNG_DPI, transparent=False)


def _svg(draw: Draw) -> str:
    """An <svg> element to stand in a page."""
    with matplotlib.rc_context(STYLE), io.StringIO() as file:
        figure = Figure((WIDTH_IN, HEIGHT_IN), layout="constrained")
        draw(figure.subplots())
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        text = file.getvalue()
    return text[text.index("<svg") :].replace(INK, "currentColor")


def _spectrum(all_figures: Sequence[Figures]) -> Draw:
    lines = [(figures.run.schedule, figures.run.latency_ns()) for figures in all_figures]
    if len(all_figures) == 1:
        run = all_figures[0].run
        lines = [
            ("from the intended send: what a user waits", run.latency_ns()),
            ("from the real send: hides waiting", run.uncorrected_ns()),
        ]

    def draw(axes: Axes) -> None:
        for place, (label, spans_ns) in enumerate(lines):
            _spectrum_line(axes, spans_ns, label, SERIES[place % len(SERIES)], "-" if place == 0 else "--")
        count = max(len(spans_ns) for _, spans_ns in lines)
        _nines(axes, count)
        _latency_axis(axes, "y")
        axes.set_title("Percentiles of latency", loc="left")
        axes.legend(loc="upper left")

    return draw


def _spectrum_line(axes: Axes, spans_ns: NANOSECONDS, label: str, colour: str, style: str) -> None:
    """Sample r of n that ascend is the percentile up to r / n, where 1 in n / (n - r) takes longer; so up to n for the
    last but one, and the last one ends the line."""
    count = len(spans_ns)
    ascending_ns = np.sort(spans_ns)
    beyond = np.unique(np.geomspace(1, count, SPECTRUM_POINTS).astype(np.int64))[::-1]
    one_in = count / beyond
    values_ns = ascending_ns[np.maximum(count - beyond - 1, 0)]
    axes.step([*one_in, count], [*values_ns / 1000, ascending_ns[-1] / 1000], style, where="pre", color=colour)
    axes.plot(count, ascending_ns[-1] / 1000, "o", color=colour, markersize=4)
    axes.plot([], [], style, color=colour, label=label)


def _nines(axes: Axes, count: int) -> None:
    """The x axis: each step to the right is ten times as rare."""
    axes.set_xscale("log")
    ticks = {1: "0%", 2: "50%", 10: "90%"} | {10**nines: f"99{'.' if nines > 2 else ''}{'9' * (nines - 2)}%" for nines in range(2, 9)}
    shown = {one_in: label for one_in, label in ticks.items() if one_in <= max(count, 10)}
    axes.set_xticks(list(shown), list(shown.values()))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(1, max(count, 10) * 1.3)
    axes.set_xlabel("percentile")
    axes.axvspan(max(count / 10, 1), max(count, 10) * 1.3, color=INK, alpha=0.06, linewidth=0)
    axes.text(
        0.99, 0.02, "fewer than 10 requests", transform=axes.transAxes, ha="right", va="bottom", fontsize=8, alpha=0.7
    )


def _over_time(run: Run) -> Draw:
    rows = run.rows[run.rows["intended_ns"] > 0] if run.open_loop else run.rows[run.rows["sent_ns"] > 0]
    at_s = (rows["intended_ns"] - rows["intended_ns"].min()) / 1e9
    edges_s = np.linspace(0, max(float(at_s.max()), 1e-9), TIME_BINS + 1)
    bins = np.clip(np.searchsorted(edges_s, at_s, "right") - 1, 0, TIME_BINS - 1)
    answered = rows["code"] == OK
    latency_us = (rows["done_ns"] - rows["intended_ns"]) / 1000

    def of_bin(quantile: float) -> list[float]:
        chosen = (latency_us[answered & (bins == number)] for number in range(TIME_BINS))
        return [float(np.quantile(values, quantile, method="inverted_cdf")) if len(values) else np.nan for values in chosen]

    def draw(axes: Axes) -> None:
        middle_s = (edges_s[:-1] + edges_s[1:]) / 2
        axes.plot(middle_s, of_bin(1), color=RED, linewidth=1, label="slowest")
        axes.plot(middle_s, of_bin(0.99), color=ORANGE, linewidth=1.2, label="p99")
        axes.plot(middle_s, of_bin(0.5), color=BLUE, linewidth=1.6, label="p50")
        _latency_axis(axes, "y")
        failed_s = middle_s[np.unique(bins[~answered])]
        if len(failed_s):
            floor = np.full(len(failed_s), 0.02)
            axes.plot(failed_s, floor, "x", color=RED, transform=axes.get_xaxis_transform(), label="without a prediction")
        axes.set_xlim(0, edges_s[-1])
        axes.set_xlabel("intended send time, seconds")
        axes.set_title("Latency over the run", loc="left")
        axes.legend(loc="upper right", ncols=4, bbox_to_anchor=(1, 1.13), borderpad=0)

    return draw


def _stages(figures: Figures) -> Draw:
    names, means_us = list(figures.stage_means_ns), np.array(list(figures.stage_means_ns.values())) / 1000
    begins_us = np.cumsum(means_us) - means_us

    def draw(axes: Axes) -> None:
        colours = [SERIES[place % len(SERIES)] for place in range(len(names))]
        axes.barh([*names, "latency"], [*means_us, means_us.sum()], left=[*begins_us, 0], color=[*colours, INK])
        for place, value in enumerate((*means_us, means_us.sum())):
            end = begins_us[place] + value if place < len(names) else value
            axes.annotate(microseconds(value * 1000), (end, place), (4, 0), textcoords="offset points", va="center")
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlim(0, means_us.sum() * 1.12)
        axes.set_xlabel("mean, µs")
        axes.set_title("Where the mean latency went", loc="left")

    return draw


def _latency_axis(axes: Axes, which: str) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("latency, µs")
