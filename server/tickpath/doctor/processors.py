"""Processors: how fast they run, how deep they sleep, and who else is on them."""

import re
from typing import Final

from tickpath.doctor.finding import Finding, ok, unseen, warn
from tickpath.doctor.host import Host, cpu_list, told

# Waking up from a deeper state takes longer than a small model.
IDLE_LATENCY_US_MAX: Final = 10
# A thousandth: of 1,000 requests one waits for another guest.
STEAL_SHARE_MAX: Final = 0.001


def governor(host: Host) -> Finding:
    """Whether the clock is up before the work comes."""
    check = "frequency governor"
    governors = dict(host.of_each_cpu("cpufreq/scaling_governor"))
    if not governors:
        return unseen(check, "no cpufreq here: a virtual machine, whose host decides, or a fixed clock")
    slow = frozenset(cpu for cpu, governor in governors.items() if governor != "performance")
    if not slow:
        return ok(check, "performance")
    names = ", ".join(sorted({governors[cpu] for cpu in slow}))
    return warn(check, f"{names} on {told(slow)}", "cpupower frequency-set -g performance")


def idle_states(host: Host) -> Finding:
    """How long a processor takes to wake up."""
    check = "idle states"
    deepest: tuple[int, str] = (-1, "")
    for cpu in sorted(host.cpus):
        for state in host.glob(f"sys/devices/system/cpu/cpu{cpu}/cpuidle/state*"):
            if host.text(f"{state}/disable") == "0":
                deepest = max(deepest, (host.number(f"{state}/latency") or 0, host.text(f"{state}/name") or "?"))
    latency_us, name = deepest
    if latency_us < 0:
        return unseen(check, "no cpuidle here: a virtual machine, whose host decides")
    if latency_us <= IDLE_LATENCY_US_MAX:
        return ok(check, f"the deepest is {name}, {latency_us} µs")
    return warn(
        check,
        f"{name} takes {latency_us} µs to wake up",
        "serve --spin, which never sleeps; or cpupower idle-set -D 10; or processor.max_cstate=1 for the kernel",
    )


def siblings(host: Host) -> Finding:
    """Whether the core is shared by two hardware threads."""
    check = "SMT siblings"
    shared = {cpu: cpu_list(text) for cpu, text in host.of_each_cpu("topology/thread_siblings_list")}
    if not shared:
        return unseen(check, "the topology is not told")
    if all(len(cpus) == 1 for cpus in shared.values()):
        return ok(check, "each processor is a core of its own")
    if (cpu := host.pinned) is None:
        return warn(check, "two threads share a core", "serve --cpu N, and leave its sibling idle")
    others = told(shared.get(cpu, frozenset()) - {cpu})
    return warn(
        check,
        f"{cpu} shares its core with {others}",
        f"keep all else off {others}, or echo off > /sys/devices/system/cpu/smt/control",
    )


def isolated(host: Host) -> Finding:
    """Whether the scheduler puts others onto the server's processor."""
    check = "isolated processors"
    isolated_cpus = cpu_list(host.text("sys/devices/system/cpu/isolated") or "")
    tickless = cpu_list(host.text("sys/devices/system/cpu/nohz_full") or "")
    if (cpu := host.pinned) is None:
        found = f"{told(isolated_cpus)} are isolated" if isolated_cpus else "none, and the server is not pinned"
        return warn(check, found, "isolate a core, and name it: serve --cpu N (and doctor --cpu N)")
    if cpu in isolated_cpus:
        found = f"{cpu} is isolated{' and tickless' if cpu in tickless else ''}"
        if cpu in tickless:
            return ok(check, found)
        return warn(check, f"{found}, its timer ticks", f"nohz_full={cpu} rcu_nocbs={cpu} for the kernel")
    return warn(check, f"{cpu} is anybody's", f"isolcpus={cpu} nohz_full={cpu} for the kernel, or a cpuset of its own")


def steal(host: Host) -> Finding:
    """How much of the processors' time other guests had, since the machine was started."""
    check = "stolen time"
    lines: list[str] = re.findall(r"^cpu\d+ (.+)$", host.text("proc/stat") or "", re.MULTILINE)
    counts = [[int(word) for word in line.split() if word.isdecimal()] for line in lines]
    total = sum(sum(each[:8]) for each in counts)
    if not total or any(len(each) < 8 for each in counts):
        return unseen(check, "/proc/stat does not tell")
    share = sum(each[7] for each in counts) / total
    if share <= STEAL_SHARE_MAX:
        return ok(check, f"{share:.2%} since the start")
    return warn(check, f"{share:.2%} since the start", "dedicated processors for this guest, or no guest at all")


def numa(host: Host) -> Finding:
    """Whether network cards and GPUs hang on the node the server runs on."""
    check = "NUMA locality"
    nodes = {
        int(path.rpartition("node")[2]): cpu_list(host.text(f"{path}/cpulist") or "")
        for path in host.glob("sys/devices/system/node/node[0-9]*")
    }
    if not nodes and not host.tells("sys/devices/system/cpu"):
        return unseen(check, "/sys does not tell")
    if len(nodes) < 2:
        return ok(check, "one node")
    here = {number for number, cpus in nodes.items() if cpus & host.cpus}
    if len(here) > 1:
        return warn(check, f"the server may run on nodes {sorted(here)}", "serve --cpu N, on the node of the card")
    far = [name for name, node in _devices(host) if node >= 0 and node not in here]
    if far:
        return warn(check, f"{', '.join(far)} not on node {min(here)}", "choose a --cpu of their node")
    return ok(check, f"all on node {min(here, default=0)}")


def _devices(host: Host) -> list[tuple[str, int]]:
    """Network cards and NVIDIA's devices, each with its node."""
    found = [(path.split("/")[-2], host.number(f"{path}/numa_node")) for path in host.glob("sys/class/net/*/device")]
    for path in host.glob("sys/bus/pci/devices/*"):
        if host.text(f"{path}/vendor") == "0x10de":
            found.append((f"the GPU {path.rpartition('/')[2]}", host.number(f"{path}/numa_node")))
    return [(name, node) for name, node in found if node is not None]


CHECKS: Final = (governor, idle_states, siblings, isolated, steal, numa)
