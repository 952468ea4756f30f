"""What `tickpath doctor` makes of hosts that are not at hand: made-up trees of /proc and /sys."""

import errno
import os
import resource
import socket
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tickpath.doctor import gpu, limits, measured, memory, network, processors
from tickpath.doctor.examination import looks
from tickpath.doctor.finding import Finding, Verdict
from tickpath.doctor.host import Host, cpu_list, told
from tickpath.doctor.measured import Hiccups

CPU = "sys/devices/system/cpu"
PINNED = frozenset({2})
FREE = frozenset({2, 3})


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})


def tree(root: Path, files: dict[str, str], cpus: frozenset[int] = PINNED) -> Host:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return Host(cpus, root)


def says(finding: Finding, verdict: Verdict, *texts: str) -> None:
    assert finding.verdict is verdict, finding
    whole = f"{finding.found} {finding.remedy}"
    assert [text for text in texts if text not in whole] == [], finding
    assert bool(finding.remedy) == (verdict in (Verdict.WARN, Verdict.FAIL))


def test_cpu_lists() -> None:
    assert cpu_list("0-2,8") == {0, 1, 2, 8}
    assert cpu_list("") == cpu_list("(null)") == frozenset()
    assert told(frozenset({0, 1, 2, 8, 10})) == "0-2,8,10"


def test_governor(tmp_path: Path) -> None:
    says(processors.governor(tree(tmp_path, {})), Verdict.UNSEEN)
    path = f"{CPU}/cpu2/cpufreq/scaling_governor"
    says(processors.governor(tree(tmp_path, {path: "performance"})), Verdict.OK)
    says(processors.governor(tree(tmp_path, {path: "schedutil"})), Verdict.WARN, "schedutil on 2", "cpupower")


def test_idle_states(tmp_path: Path) -> None:
    says(processors.idle_states(tree(tmp_path, {})), Verdict.UNSEEN)
    state = f"{CPU}/cpu2/cpuidle/state"
    files = {f"{state}0/name": "POLL", f"{state}0/latency": "0", f"{state}0/disable": "0"}
    says(processors.idle_states(tree(tmp_path, files)), Verdict.OK, "POLL")
    deep = {f"{state}1/name": "C6", f"{state}1/latency": "133", f"{state}1/disable": "0"}
    says(processors.idle_states(tree(tmp_path, deep)), Verdict.WARN, "C6", "133 µs", "--spin")
    says(processors.idle_states(tree(tmp_path, {f"{state}1/disable": "1"})), Verdict.OK)


def test_siblings(tmp_path: Path) -> None:
    path = f"{CPU}/cpu2/topology/thread_siblings_list"
    says(processors.siblings(tree(tmp_path, {})), Verdict.UNSEEN)
    says(processors.siblings(tree(tmp_path, {path: "2"})), Verdict.OK)
    says(processors.siblings(tree(tmp_path, {path: "2,6"})), Verdict.WARN, "with 6")
    says(processors.siblings(tree(tmp_path, {}, FREE)), Verdict.WARN, "serve --cpu")


def test_isolated(tmp_path: Path) -> None:
    says(processors.isolated(tree(tmp_path, {}, FREE)), Verdict.WARN, "not pinned")
    says(processors.isolated(tree(tmp_path, {f"{CPU}/isolated": ""})), Verdict.WARN, "isolcpus=2")
    says(processors.isolated(tree(tmp_path, {f"{CPU}/isolated": "2-3"})), Verdict.WARN, "ticks", "nohz_full=2")
    says(processors.isolated(tree(tmp_path, {f"{CPU}/nohz_full": "2-3"})), Verdict.OK, "tickless")


def test_stolen_time(tmp_path: Path) -> None:
    says(processors.steal(tree(tmp_path, {})), Verdict.UNSEEN)
    says(processors.steal(tree(tmp_path, {"proc/stat": "cpu  1 1 1 1\ncpu0 900 0 0 100 0 0 0 0 0 0"})), Verdict.OK)
    says(processors.steal(tree(tmp_path, {"proc/stat": "cpu0 900 0 0 80 0 0 0 20 0 0"})), Verdict.WARN, "2.00%")


def test_numa(tmp_path: Path) -> None:
    node = "sys/devices/system/node/node"
    says(processors.numa(tree(tmp_path, {f"{node}0/cpulist": "0-3"})), Verdict.OK, "one node")
    two = {f"{node}0/cpulist": "0-1", f"{node}1/cpulist": "2-3", "sys/class/net/eth0/device/numa_node": "1"}
    says(processors.numa(tree(tmp_path, two)), Verdict.OK, "node 1")
    gpu_far = {"sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de", "sys/bus/pci/devices/0000:01:00.0/numa_node": "0"}
    says(processors.numa(tree(tmp_path, gpu_far)), Verdict.WARN, "the GPU 0000:01:00.0", "not on node 1")
    says(processors.numa(tree(tmp_path, {}, frozenset({1, 2}))), Verdict.WARN, "[0, 1]")


def test_memory(tmp_path: Path) -> None:
    path = "sys/kernel/mm/transparent_hugepage/enabled"
    says(memory.huge_pages(tree(tmp_path, {})), Verdict.UNSEEN)
    says(memory.huge_pages(tree(tmp_path, {path: "always [madvise] never"})), Verdict.OK)
    says(memory.huge_pages(tree(tmp_path, {path: "[always] madvise never"})), Verdict.WARN, "echo madvise")
    says(memory.swap(tree(tmp_path, {"proc/swaps": "Filename Type"})), Verdict.OK)
    says(memory.swap(tree(tmp_path, {"proc/swaps": "Filename Type\n/dev/sda2 partition"})), Verdict.WARN, "/dev/sda2")
    says(memory.numa_balancing(tree(tmp_path, {})), Verdict.UNSEEN)
    says(memory.numa_balancing(tree(tmp_path, {"proc/sys/kernel/ostype": "Linux"})), Verdict.OK, "has none")
    says(memory.numa_balancing(tree(tmp_path, {"proc/sys/kernel/numa_balancing": "1"})), Verdict.WARN)
    says(memory.numa_balancing(tree(tmp_path, {"proc/sys/kernel/numa_balancing": "0"})), Verdict.OK)
    says(memory.judge_locked(8 * 2**20, may_lock_all=False), Verdict.WARN, "8192 KiB", "LimitMEMLOCK")
    says(memory.judge_locked(8 * 2**20, may_lock_all=True), Verdict.OK)
    says(memory.judge_locked(2**27, may_lock_all=False), Verdict.OK, "128 MiB")
    says(memory.judge_locked(resource.RLIM_INFINITY, may_lock_all=False), Verdict.OK)


def test_limits(tmp_path: Path) -> None:
    says(limits.judge_open_files(64), Verdict.FAIL, "64", "ulimit -n")
    says(limits.judge_open_files(1000), Verdict.WARN, "sessions_max")
    says(limits.judge_open_files(20_000), Verdict.OK)
    clock = "sys/devices/system/clocksource/clocksource0"
    says(limits.clock_source(tree(tmp_path, {})), Verdict.UNSEEN)
    says(limits.clock_source(tree(tmp_path, {f"{clock}/current_clocksource": "tsc"})), Verdict.OK)
    slow = {f"{clock}/current_clocksource": "hpet", f"{clock}/available_clocksource": "hpet acpi_pm"}
    says(limits.clock_source(tree(tmp_path, slow)), Verdict.FAIL, "hpet", "TSC")
    quick = {f"{clock}/available_clocksource": "hpet tsc"}
    says(limits.clock_source(tree(tmp_path, quick)), Verdict.FAIL, "echo tsc")
    says(limits.timer_slack(tree(tmp_path, {"proc/self/timerslack_ns": "50000"})), Verdict.OK)
    says(limits.timer_slack(tree(tmp_path, {"proc/self/timerslack_ns": "1000000"})), Verdict.WARN, "1000 µs")


MOUNTS = "proc/self/mountinfo"
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw"
OF_CPU = "31 23 0:27 {top} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"


def test_quota_of_either_generation_of_control_groups(tmp_path: Path) -> None:
    group, stat = "sys/fs/cgroup/slice/unit", "usage_usec 7\nnr_throttled 0"
    two = {"proc/self/cgroup": "0::/slice/unit", MOUNTS: UNIFIED, f"{group}/cpu.stat": stat}
    says(limits.quota(tree(tmp_path / "two", two)), Verdict.OK)
    says(limits.quota(tree(tmp_path / "two", {f"{group}/cpu.max": "max 100000"})), Verdict.OK)
    says(limits.quota(tree(tmp_path / "two", {f"{group}/cpu.max": "200000 100000"})), Verdict.WARN, "100 ms", "cpuset")
    throttled = {f"{group}/cpu.stat": "nr_throttled 12"}
    says(limits.quota(tree(tmp_path / "two", throttled)), Verdict.FAIL, "12 times")
    group = "sys/fs/cgroup/cpu,cpuacct/c"
    one = {"proc/self/cgroup": "4:memory:/m\n1:cpu,cpuacct:/c", MOUNTS: OF_CPU.format(top="/")}
    one |= {f"{group}/cpu.stat": "nr_throttled 0", f"{group}/cpu.cfs_quota_us": "-1"}
    says(limits.quota(tree(tmp_path / "one", one)), Verdict.OK)
    says(limits.quota(tree(tmp_path / "one", {f"{group}/cpu.cfs_quota_us": "50000"})), Verdict.WARN)


def test_a_quota_above_the_servers_own_group_counts(tmp_path: Path) -> None:
    """As of a systemd slice, or of a container, whose own group is at the mount."""
    stat = "nr_throttled 0"
    files = {"proc/self/cgroup": "0::/slice/unit", MOUNTS: UNIFIED, "sys/fs/cgroup/slice/unit/cpu.stat": stat}
    files |= {"sys/fs/cgroup/slice/unit/cpu.max": "max 100000", "sys/fs/cgroup/slice/cpu.stat": stat}
    says(limits.quota(tree(tmp_path / "slice", files)), Verdict.OK)
    says(limits.quota(tree(tmp_path / "slice", {"sys/fs/cgroup/slice/cpu.max": "100 1000"})), Verdict.WARN)
    files = {"proc/self/cgroup": "1:cpu,cpuacct:/pod/c", MOUNTS: OF_CPU.format(top="/pod/c")}
    files |= {
        f"sys/fs/cgroup/cpu,cpuacct/{name}": text for name, text in (("cpu.stat", stat), ("cpu.cfs_quota_us", "5"))
    }
    says(limits.quota(tree(tmp_path / "pod", files)), Verdict.WARN)


INTERRUPTS = """\
           CPU0       CPU1       CPU2       CPU3
  24:         1          0          0          9   IO-APIC   5-edge      ACPI:Ged
 120:         0          0       4711          0  PCI-MSI 1-edge      eth0-rx-0
 121:         0          0          0          0  PCI-MSI 2-edge      eth0-rx-1
 LOC:       5          5          5          5   Local timer interrupts"""


def test_interrupts(tmp_path: Path) -> None:
    files = {
        "proc/interrupts": INTERRUPTS,
        "proc/irq/24/smp_affinity_list": "0-3",
        "proc/irq/120/effective_affinity_list": "2",
        "proc/irq/121/effective_affinity_list": "2",
    }
    says(network.interrupts(tree(tmp_path, {})), Verdict.UNSEEN)
    says(network.interrupts(tree(tmp_path, files)), Verdict.WARN, "eth0-rx-0 (120) on 2", "smp_affinity_list")
    says(network.interrupts(tree(tmp_path, {"proc/irq/120/effective_affinity_list": "0"})), Verdict.OK)
    says(network.interrupts(tree(tmp_path, {}, FREE)), Verdict.WARN, "not pinned")


def test_network(tmp_path: Path) -> None:
    poll = "proc/sys/net/core/busy_poll"
    says(network.coalescing(tree(tmp_path, {})), Verdict.UNSEEN)
    says(network.busy_poll(tree(tmp_path, {})), Verdict.UNSEEN)
    says(network.busy_poll(tree(tmp_path, {poll: "0"})), Verdict.OK)
    card = {"sys/class/net/eth0/device/vendor": "0x8086"}
    says(network.busy_poll(tree(tmp_path, card)), Verdict.WARN, "busy_poll=50")
    says(network.busy_poll(tree(tmp_path, {poll: "50"})), Verdict.OK, "50 µs")
    assert network.receive_wait_us("no-such-card") is None


def test_gpu(tmp_path: Path) -> None:
    says(gpu.driver(tree(tmp_path, {})), Verdict.UNSEEN)
    says(gpu.persistence(tree(tmp_path, {})), Verdict.UNSEEN)
    says(gpu.driver(tree(tmp_path, {"proc/driver/rtc": "no alarm"})), Verdict.OK, "CPU")
    says(gpu.persistence(tree(tmp_path, {})), Verdict.OK, "no GPU")
    version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build"
    host = tree(tmp_path, {"proc/driver/nvidia/version": version})
    says(gpu.driver(host), Verdict.OK, "570.86.15")
    assert gpu.persistence(host).verdict is Verdict.UNSEEN  # no driver answers here


def test_what_was_measured() -> None:
    says(measured.judge_hiccups(Hiccups(2.0, [])), Verdict.OK, "worst 0 µs")
    says(measured.judge_hiccups(Hiccups(2.0, [50_000, 30_000_000])), Verdict.WARN, "worst 30,000 µs", "2 over", "1.50%")
    says(measured.judge_round_trips(np.full(100, 20_000)), Verdict.OK, "p50 20.0 µs")
    says(measured.judge_round_trips(np.full(100, 200_000)), Verdict.WARN, "wake-ups")


# Of this process and this installation, whatever the files say.
NOT_OF_FILES = {"locked memory", "open files", "GPU runtimes"}


def test_where_nothing_is_told_nothing_is_well(tmp_path: Path) -> None:
    findings = [look() for look in looks(Host(PINNED, tmp_path), 0)]
    assert len({finding.check for finding in findings}) == len(findings) == 20
    assert all(finding.found for finding in findings)
    well = {finding.check for finding in findings if finding.verdict is Verdict.OK}
    assert well <= NOT_OF_FILES


@dataclass(frozen=True)
class Odd(Host):
    """Every file is there, and says something else than Linux would."""

    said: str = ""

    def text(self, _path: str) -> str:
        return self.said

    def glob(self, pattern: str) -> list[str]:
        return [pattern.replace("*", "0").replace("[0-9]", "0")]


@pytest.mark.parametrize("cpus", [PINNED, FREE])
@pytest.mark.parametrize(
    "said",
    ["", "\n \n", ":", "0:\n1:cpu", "a b\n\nc", "cpu0 a b c d e f g h", "CPU2\n 3: x y", "²-²", "5-", "9-1", "\x00"],
)
def test_every_look_gives_a_finding_whatever_is_told(tmp_path: Path, said: str, cpus: frozenset[int]) -> None:
    host = Odd(cpus, tmp_path, said)
    for name in ("cgroup", "mountinfo"):
        tree(tmp_path, {f"proc/self/{name}": said})
    assert all(finding.found for finding in (look() for look in looks(host, 0)))


def test_without_a_loopback_only_its_floor_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> socket.socket:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket, "create_server", unreachable)
    says(measured.round_trips(), Verdict.UNSEEN, "Network is unreachable")
