"""Quiet: times in which nothing is loaded, unloaded or collected, since it might move a reply. Pure."""

import re
from dataclasses import dataclass
from typing import Final

MINUTES_OF_DAY: Final = 24 * 60
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)\Z")

HOURS_PATTERN: Final = r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d\Z"


@dataclass(frozen=True, slots=True)
class Hours:
    """A part of every day, from minute `start` to before minute `end`; over midnight where `end` comes first."""

    start: int
    end: int

    def hold(self, minute: int) -> bool:
        """Whether this minute of the day (0 to 1439) is among them."""
        if self.start <= self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


class Quiet:
    """Whether it is quiet: by the hours of the day, or since someone said so. `asked` None: the hours decide."""

    def __init__(self, hours: tuple[str, ...]) -> None:
        self.hours = hours
        self.asked: bool | None = None
        self._hours = tuple(map(parse_hours, hours))

    def holds(self, minute: int) -> bool:
        """Whether it is quiet at this minute of the day, local time."""
        if self.asked is not None:
            return self.asked
        return any(hours.hold(minute) for hours in self._hours)


def parse_hours(text: str) -> Hours:
    """`09:30-16:00` -> Hours. Raises ValueError."""
    if (found := _HOURS.match(text)) is None:
        raise ValueError(f"expected hours as 09:30-16:00, {text!r} came")
    start_hour, start_minute, end_hour, end_minute = map(int, found.groups())
    return Hours(start_hour * 60 + start_minute, end_hour * 60 + end_minute)
