"""A comparison as people read it."""

import io

from rich.console import Console

from tickpath.loadtest.compare import Comparison, Difference, Ratio
from tickpath.loadtest.report.comparison import PROBLEMS_MAX, comparison_parts

SAME = Ratio((1.0, 1.0), 1.0, 0.98, 1.02)
SLOWER = Ratio((1.5, 1.5), 1.5, 1.4, 1.6)


def text_of(comparison: Comparison) -> str:
    file = io.StringIO()
    Console(file=file, width=100, markup=False).print(*comparison_parts("a:1", "b:2", comparison), sep="\n")
    return file.getvalue()


def test_what_differs_and_what_does_not() -> None:
    differences = (Difference("p50", SAME, SLOWER), Difference("p99", SAME, SAME))
    text = text_of(Comparison(differences, 10, 0.95, ()))
    assert "INVALID" not in text
    assert "p50: B is 50.0% slower (40.0% to 60.0%)" in text
    assert "p99: no difference that can be claimed; here that takes 2.0%" in text
    assert "A is a:1" in text
    assert "1.400 to 1.600" in text


def test_a_few_problems_stand_for_many() -> None:
    problems = tuple(f"problem {number}" for number in range(PROBLEMS_MAX + 3))
    text = text_of(Comparison((Difference("p50", SAME, SAME),), 10, 0.95, problems))
    assert text.count("INVALID") == PROBLEMS_MAX + 1
    assert "INVALID: 3 more like these" in text
