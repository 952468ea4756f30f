"""What is seen of a process from outside, against a real one that does it, and files as kernels write them."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns

import numpy as np
import pytest

from tickpath.cgroups import cpu_groups
from tickpath.observe import jitter as jitter_module
from tickpath.observe.cgroup import Throttling
from tickpath.observe.histograms import Ints
from tickpath.observe.jitter import SLOW_LOOKS, Jitter
from tickpath.observe.kept import Word
from tickpath.observe.process import CoreProcess, LoopThread, Stolen, Threads, frequency_hz
from tickpath.observe.records import Event, EventKind
from tickpath.observe.watched import Watched

V1 = "3:cpuset:/\n2:cpu,cpuacct:/pod/core\n1:name=systemd:/\n0::/elsewhere\n"
V1_MOUNTS = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / {root}/cpuset rw - cgroup cgroup rw,cpuset\n"
    "33 31 0:30 / {root}/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
)
V2 = "0::/pod/core\n"
V2_MOUNTS = "30 23 0:26 / {root} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def counters() -> Ints:
    return np.zeros(len(Word) + max(Word), np.int64)


class Counter:
    """A source that counts as it is told."""

    def __init__(self, kind: EventKind) -> None:
        self.kind, self.total, self.looks = kind, 0, 0

    def totals(self) -> Mapping[EventKind, int]:
        self.looks += 1
        return {self.kind: self.total}


def test_what_was_added_between_two_looks_is_an_event() -> None:
    faults = Counter(EventKind.MINOR_FAULTS)
    faults.total = 1_000  # before anybody looked
    jitter = Jitter([faults])
    for now_ns, total in ((10, 1_000), (20, 1_007), (30, 1_007), (40, 1_010)):
        faults.total = total
        jitter.sample(now_ns)
    assert jitter.between(0, 100) == [
        Event(EventKind.MINOR_FAULTS, 10, 20, 7),
        Event(EventKind.MINOR_FAULTS, 30, 40, 3),
    ]
    assert jitter.totals[EventKind.MINOR_FAULTS] == 1_010
    assert jitter.totals[EventKind.THROTTLED] == 0


@pytest.mark.parametrize(
    ("start_ns", "end_ns", "ends"),
    [(0, 10, []), (0, 11, [20]), (20, 30, [30]), (19, 21, [20, 30]), (35, 36, [40]), (40, 99, [])],
)
def test_between_is_what_overlaps(start_ns: int, end_ns: int, ends: list[int]) -> None:
    counter = Counter(EventKind.RUN_QUEUE)
    jitter = Jitter([counter])
    for now_ns in (10, 20, 30, 40):
        counter.total += 1
        jitter.sample(now_ns)
    assert [event.end_ns for event in jitter.between(start_ns, end_ns)] == ends


def test_slow_sources_are_looked_at_less_often_and_their_events_are_as_long() -> None:
    quick, slow = Counter(EventKind.RUN_QUEUE), Counter(EventKind.STOLEN)
    jitter = Jitter([quick], [slow])
    for now_ns in range(SLOW_LOOKS + 1):
        slow.total += 1
        jitter.sample(now_ns)
    assert (quick.looks, slow.looks) == (SLOW_LOOKS + 1, 2)
    assert jitter.between(0, 99) == [Event(EventKind.STOLEN, 0, SLOW_LOOKS, SLOW_LOOKS)]


def test_old_events_are_forgotten_and_the_newest_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jitter_module, "EVENTS_MAX", 10)
    counter = Counter(EventKind.RUN_QUEUE)
    jitter = Jitter([counter])
    for now_ns in range(100):
        counter.total += 1
        jitter.sample(now_ns)
        kept = [event.end_ns for event in jitter.between(0, 100)]
        assert kept == list(range(now_ns - len(kept) + 1, now_ns + 1))
        assert min(10, now_ns) <= len(kept) <= 20


# -- a real process --

RESTLESS = """
import mmap, sys, threading, time
def switch():
    for _ in range(50): time.sleep(0.0001)
for line in sys.stdin:
    memory = mmap.mmap(-1, 4096 * 500)
    for page in range(500): memory[page * 4096] = 1
    memory.close()
    thread = threading.Thread(target=switch); thread.start(); thread.join()
    print("done", flush=True)
"""


@contextmanager
def restless() -> Iterator[subprocess.Popen[str]]:
    """Touches 500 pages, and has a thread that sleeps 50 times and ends, for each line it is told."""
    with subprocess.Popen(
        [sys.executable, "-c", RESTLESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def disturb(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def test_page_faults_of_a_process_are_counted_and_dated() -> None:
    with restless() as process:
        disturb(process)
        jitter = Jitter([CoreProcess(process.pid)])
        jitter.sample(before_ns := monotonic_ns())
        disturb(process)
        jitter.sample(after_ns := monotonic_ns())
    (faults,) = (event for event in jitter.between(before_ns, after_ns) if event.kind is EventKind.MINOR_FAULTS)
    assert faults.amount >= 500
    assert (faults.start_ns, faults.end_ns) == (before_ns, after_ns)


def test_a_thread_that_is_kept_from_running_has_waited() -> None:
    """Three that want one processor: each waits for the others, and is pushed off it."""
    cpu = max(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{cpu}}}); print(flush=True)\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(3)]
    try:
        for process in busy:
            assert process.stdout is not None
            process.stdout.readline()
        core = CoreProcess(busy[0].pid)
        jitter = Jitter([core, LoopThread(core)])
        wanted = {EventKind.LOOP_PREEMPTED, EventKind.RUN_QUEUE}
        while not wanted <= {event.kind for event in jitter.between(0, 2**63)}:
            jitter.sample(monotonic_ns())
        assert core.cpu == cpu
    finally:
        for process in busy:
            process.kill()
            process.communicate()


def test_context_switches_keep_what_ended_threads_had() -> None:
    with restless() as process:
        threads = Threads(CoreProcess(process.pid), counters())
        seen = []
        for _ in range(5):
            disturb(process)
            threads.totals()
            seen.append(threads.switches)
    assert seen == sorted(seen)
    assert seen[-1][0] > seen[0][0]


def test_what_is_seen_of_an_ended_process_stays_as_it_was() -> None:
    with restless() as process:
        watched = Watched(CoreProcess(process.pid), counters())
        disturb(process)
        watched.jitter.sample(1)
        before = watched.seen()
    for now_ns in range(2, 2 + SLOW_LOOKS):
        watched.jitter.sample(now_ns)
    after = watched.seen()
    assert after.switches == before.switches
    assert after.totals[EventKind.MINOR_FAULTS] == before.totals[EventKind.MINOR_FAULTS] > 0


def test_a_process_that_has_ended_is_none() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(ProcessLookupError):
        CoreProcess(ended.pid)


def test_stolen_time_is_of_the_cpu_that_the_loop_is_on() -> None:
    stolen = Stolen(CoreProcess(os.getpid()), counters())
    first = stolen.totals()[EventKind.STOLEN]
    assert 0 <= first <= stolen.totals()[EventKind.STOLEN]


def test_a_frequency_is_in_hertz_and_0_where_there_is_none(tmp_path: Path) -> None:
    assert frequency_hz(3, tmp_path) == 0
    file = tmp_path / "cpu3" / "cpufreq" / "scaling_cur_freq"
    file.parent.mkdir(parents=True)
    file.write_text("2445000\n")
    assert frequency_hz(3, tmp_path) == 2_445_000_000
    assert frequency_hz(30, tmp_path) == 0


# -- control groups --


def proc_of(folder: Path, cgroup: str, mounts: str) -> Path:
    """A /proc with one process, 7, and this one's mounts."""
    for name, text in (("7/cgroup", cgroup), ("self/mountinfo", mounts)):
        (folder / "proc" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "proc" / name).write_text(text)
    return folder / "proc"


def stat_file(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.stat").write_text(text)


def test_version_2_counts_its_own_group_and_those_above(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    stat_file(root, "usage_usec 5\n")
    stat_file(root / "pod", "usage_usec 5\nnr_periods 9\nnr_throttled 1\nthrottled_usec 30\n")
    stat_file(root / "pod/core", "usage_usec 5\nnr_periods 9\nnr_throttled 2\nthrottled_usec 400\n")
    proc = proc_of(tmp_path, V2, V2_MOUNTS.format(root=root))
    throttling = Throttling(7, proc)
    assert throttling.totals() == {EventKind.THROTTLED: 430_000}
    assert throttling.periods == 3


def test_version_1_counts_nanoseconds_in_the_cpu_hierarchy(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    stat_file(root / "cpu", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
    stat_file(root / "cpu/pod/core", "nr_periods 4\nnr_throttled 3\nthrottled_time 12345\n")
    throttling = Throttling(7, proc_of(tmp_path, V1, V1_MOUNTS.format(root=root)))
    assert throttling.totals() == {EventKind.THROTTLED: 12_345}
    assert throttling.periods == 3
    (root / "cpu/pod/core/cpu.stat").write_text("nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
    assert throttling.totals() == {EventKind.THROTTLED: 12_345}  # never downwards


def test_a_container_sees_its_group_at_the_mount(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    stat_file(root, "nr_throttled 1\nthrottled_usec 2\n")
    mounts = f"30 23 0:26 /pod {root} rw - cgroup2 cgroup rw\n"
    assert cpu_groups(7, proc_of(tmp_path, "0::/pod\n", mounts)) == [root]


@pytest.mark.parametrize(
    ("cgroup", "mounts"),
    [
        ("", ""),
        (V2, ""),
        (V2, V1_MOUNTS),
        (V1, V2_MOUNTS),
        ("0::/other\n", "30 23 0:26 /pod {root} rw - cgroup2 c rw\n"),
        ("what is this\n", V2_MOUNTS),
        (V2, "what is this\n"),
    ],
)
def test_without_a_quota_nothing_is_throttled(tmp_path: Path, cgroup: str, mounts: str) -> None:
    proc = proc_of(tmp_path, cgroup, mounts.format(root=tmp_path / "sys"))
    for pid in (7, 8):
        assert Throttling(pid, proc).totals() == {EventKind.THROTTLED: 0}
