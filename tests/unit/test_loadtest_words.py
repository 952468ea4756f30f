"""Counts and rates as people read them."""

import pytest

from tickpath.loadtest.words import counted, rate_text


@pytest.mark.parametrize(("count", "text"), [(0, "0 requests"), (1, "1 request"), (1200, "1,200 requests")])
def test_counts(count: int, text: str) -> None:
    assert counted(count, "request") == text


@pytest.mark.parametrize(
    ("rate_hz", "text"),
    [
        (5417.022188, "5,417"),
        (264.5751, "264.6"),
        (12345, "12,345"),
        (100, "100"),
        (0.123456, "0.1235"),
        (1e-9, "1e-09"),
    ],
)
def test_rates_have_four_digits_and_are_never_less_than_whole(rate_hz: float, text: str) -> None:
    assert rate_text(rate_hz) == text
