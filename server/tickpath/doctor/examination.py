"""All checks, one after the other."""

from collections.abc import Callable, Iterator
from functools import partial

from tickpath.doctor import gpu, limits, measured, memory, network, processors
from tickpath.doctor.finding import Finding
from tickpath.doctor.host import Host

Look = Callable[[], Finding]


def looks(host: Host, seconds: float) -> Iterator[Look]:
    """What gives the findings. `seconds`: how long to look for hiccups; 0: nothing is measured."""
    for module in (processors, memory, limits, network, gpu):
        for check in module.CHECKS:
            yield partial(check, host)
    if seconds:
        yield lambda: measured.judge_hiccups(measured.spin(host, seconds))
        yield measured.round_trips
