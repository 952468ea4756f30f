"""Quiet hours, minute by minute."""

import pytest

from tickpath.server.config import ConfigError, make_config
from tickpath.server.quiet import MINUTES_OF_DAY, Quiet, parse_hours


def minute(text: str) -> int:
    hours, minutes = map(int, text.split(":"))
    return hours * 60 + minutes


@pytest.mark.parametrize(
    ("hours", "count", "inside", "outside"),
    [
        (("09:30-16:00",), 390, ["09:30", "12:00", "15:59"], ["09:29", "16:00", "00:00"]),
        (("22:00-06:15",), 495, ["22:00", "23:59", "00:00", "06:14"], ["21:59", "06:15", "12:00"]),
        (("00:00-23:59",), 1439, ["00:00", "23:58"], ["23:59"]),
        (("23:59-00:00",), 1, ["23:59"], ["00:00", "23:58"]),
        (("12:00-12:00",), 0, [], ["12:00", "11:59", "00:00"]),
        (("09:00-11:00", "10:00-12:00", "23:00-01:00"), 300, ["09:00", "11:59", "00:59"], ["12:00", "01:00"]),
        ((), 0, [], ["00:00", "12:00"]),
    ],
)
def test_hours_of_the_day(hours: tuple[str, ...], count: int, inside: list[str], outside: list[str]) -> None:
    quiet = Quiet(hours)
    assert sum(map(quiet.holds, range(MINUTES_OF_DAY))) == count
    assert [text for text in inside if not quiet.holds(minute(text))] == []
    assert [text for text in outside if quiet.holds(minute(text))] == []


def test_what_an_operator_says_goes_before_the_hours_until_it_is_taken_back() -> None:
    quiet = Quiet(("09:30-16:00",))
    quiet.asked = False
    assert not quiet.holds(minute("12:00"))
    quiet.asked = True
    assert quiet.holds(minute("20:00"))
    quiet.asked = None
    assert (quiet.holds(minute("12:00")), quiet.holds(minute("20:00"))) == (True, False)


@pytest.mark.parametrize(
    "text", ["9:30-16:00", "09:30", "24:00-01:00", "09:60-10:00", "09:30-16:00 ", "09:30 - 16:00", ""]
)
def test_what_is_no_hours_is_refused_where_it_is_configured(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected hours as 09:30-16:00"):
        parse_hours(text)
    with pytest.raises(ConfigError, match=r"of hours as 09:30-16:00"):
        make_config({"models": [{"path": "m.onnx"}], "quiet_hours": [text]})
