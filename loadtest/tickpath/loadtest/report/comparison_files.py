"""A comparison for programs: JSON and CSV. docs/LOADTEST.md says what each field means."""

from typing import Any, Final

import msgspec

from tickpath.loadtest.compare import Comparison, Difference, Ratio
from tickpath.loadtest.report.files import csv_lines

COMPARISON_SCHEMA: Final = "tickpath-loadtest-compare-1"
COMPARISON_COLUMNS: Final = (
    "percentile",
    "A / A",
    "A / A low",
    "A / A high",
    "claimable from",
    "B / A",
    "B / A low",
    "B / A high",
    "claimed",
    "blocks",
    "verdict",
    "A",
    "B",
)


def json_bytes(a: str, b: str, comparison: Comparison) -> bytes:
    """One object, indented."""
    document = {
        "schema": COMPARISON_SCHEMA,
        "a": a,
        "b": b,
        "blocks": comparison.blocks,
        "confidence": comparison.confidence,
        "valid": not comparison.problems,
        "invalid_reasons": comparison.problems,
        "stopped": comparison.stopped,
        "differences": [_plain(difference) for difference in comparison.differences],
    }
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"


def _plain(difference: Difference) -> dict[str, Any]:
    return {
        "percentile": difference.percentile,
        "control": _plain_ratio(difference.control),
        "ratio": _plain_ratio(difference.ratio),
        "claimable": difference.claimable,
        "claimed": difference.claimed,
    }


def _plain_ratio(ratio: Ratio) -> dict[str, Any]:
    return {"mean": ratio.mean, "low": ratio.low, "high": ratio.high, "block_ratios": ratio.blocks}


def csv_text(a: str, b: str, comparison: Comparison) -> str:
    """A header, and a line for each percentile."""
    verdict = "INVALID" if comparison.problems else "valid"
    last = [comparison.blocks, verdict, a, b]
    return csv_lines(COMPARISON_COLUMNS, [_cells(difference) + last for difference in comparison.differences])


def _cells(difference: Difference) -> list[object]:
    control, ratio = difference.control, difference.ratio
    numbers = (control.mean, control.low, control.high, difference.claimable, ratio.mean, ratio.low, ratio.high)
    return [difference.percentile, *(f"{number:.4f}" for number in numbers), "yes" if difference.claimed else "no"]
