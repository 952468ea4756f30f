"""Limits of this process, and the clock it reads."""

import re
import resource
from typing import Final

from tickpath.cgroups import cpu_groups
from tickpath.doctor.finding import Finding, fail, ok, unseen, warn
from tickpath.doctor.host import Host

# The server's own default of sessions, and what it needs beside them (server/core.py).
OPEN_FILES: Final = 1024 + 60
# Below this not even a start and ten sessions fit.
OPEN_FILES_MIN: Final = 80
# Each reads a register. The others cross to a device for every stamp, which takes a microsecond or more.
QUICK_CLOCKS: Final = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
# What Linux gives by default. The load test and the polling loop don't pace by timers; a sleeping server's timers do.
TIMER_SLACK_NS_MAX: Final = 50_000


def open_files(_host: Host) -> Finding:
    """How many sessions there can be."""
    return judge_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def judge_open_files(limit: int) -> Finding:
    """`limit`: the hard one, to which a server raises its own."""
    check, remedy = "open files", "ulimit -n 65536, or LimitNOFILE=65536"
    if limit < OPEN_FILES_MIN:
        return fail(check, f"at most {limit}", remedy)
    if limit < OPEN_FILES:
        return warn(check, f"at most {limit}, so fewer sessions than sessions_max", remedy)
    return ok(check, f"{limit}")


def quota(host: Host) -> Finding:
    """Whether a control group, its own or one above it, takes the processor away, and has done so."""
    check = "cgroup quota"
    folders = [str(path.relative_to(host.root)) for path in cpu_groups("self", host.root / "proc", host.root)]
    if not folders:
        return unseen(check, "control groups are not mounted here")
    throttled = sum(_throttled(host.text(f"{folder}/cpu.stat") or "") for folder in folders)
    remedy = "whole processors by a cpuset, without a CPU quota (Kubernetes: static CPU manager, requests = limits)"
    if throttled:
        return fail(check, f"stopped {throttled} times by its quota", remedy)
    if any(_is_limited(host, folder) for folder in folders):
        return warn(check, "there is one: it stops the server for up to 100 ms when it is used up", remedy)
    return ok(check, "none")


def _is_limited(host: Host, folder: str) -> bool:
    """By either generation's file; the group at the top has none."""
    limit = (host.text(f"{folder}/cpu.max") or "max").partition(" ")[0]
    return limit != "max" or (host.number(f"{folder}/cpu.cfs_quota_us") or -1) > 0


def _throttled(stat: str) -> int:
    count = re.search(r"^nr_throttled (\d+)$", stat, re.MULTILINE)
    return int(count[1]) if count else 0


def clock_source(host: Host) -> Finding:
    """What a stamp costs: seven of them are taken for each request."""
    check = "clock source"
    source = host.text("sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source is None:
        return unseen(check, "the kernel does not tell")
    if source in QUICK_CLOCKS:
        return ok(check, source)
    others = host.text("sys/devices/system/clocksource/clocksource0/available_clocksource") or ""
    quick = next((clock for clock in QUICK_CLOCKS if clock in others.split()), None)
    remedy = (
        f"echo {quick} > /sys/devices/system/clocksource/clocksource0/current_clocksource"
        if quick
        else "a machine whose TSC is stable; the kernel's log says why it gave it up"
    )
    return fail(check, f"{source}: each look at the clock leaves the processor", remedy)


def timer_slack(host: Host) -> Finding:
    """How much later than asked a timer may come."""
    check = "timer slack"
    slack_ns = host.number("proc/self/timerslack_ns")
    if slack_ns is None:
        return unseen(check, "the kernel does not tell")
    if slack_ns <= TIMER_SLACK_NS_MAX:
        return ok(check, f"{slack_ns / 1000:g} µs")
    return warn(check, f"{slack_ns / 1000:g} µs", "TimerSlackNSec=50us in the unit, or start it from elsewhere")


CHECKS: Final = (open_files, quota, clock_source, timer_slack)
