"""A comparison as people read it."""

import io
import re

import numpy as np
from rich.console import Console
from tests.runs import make_run

from tickpath.loadtest.compare import Comparison, Difference, Ratio, Side
from tickpath.loadtest.report.comparison import PROBLEMS_MAX, comparison_parts
from tickpath.loadtest.run import LOST, Run

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


def test_of_too_few_blocks_the_medians_of_the_runs() -> None:
    lost = make_run(seed=3, codes={LOST: 2000})
    runs: tuple[tuple[Side, Run], ...] = (("A", make_run(seed=1)), ("B", make_run(seed=2)), ("B", lost))
    text = text_of(Comparison((), 0, 0.95, (), "interrupted; 0 blocks", runs))
    p50, p99 = np.quantile(runs[0][1].latency_ns(), [0.5, 0.99], method="inverted_cdf") / 1000
    assert re.search(rf"A +1 +{p50:.1f} +{p99:.1f}", text)
    assert re.search(r"B +1 ", text)
    assert "no comparison" in text
    assert "The comparison ended early: interrupted; 0 blocks" in text


def test_an_early_end_with_enough_blocks_is_said() -> None:
    text = text_of(Comparison((Difference("p50", SAME, SLOWER),), 7, 0.95, (), "nobody listens"))
    assert "p50: B is 50.0% slower" in text
    assert "The comparison ended early: nobody listens" in text
