"""Memory: what the kernel does to it behind our back, and how much may be locked."""

import re
import resource
from typing import Final

from tickpath.doctor.finding import Finding, ok, unseen, warn
from tickpath.doctor.host import Host

# The slots of some ten models with large windows.
LOCKED_BYTES_MIN: Final = 64 * 1024 * 1024
CAP_IPC_LOCK: Final = 1 << 14


def huge_pages(host: Host) -> Finding:
    """Whether the kernel moves a process's pages to make large ones of them."""
    check = "transparent huge pages"
    text = host.text("sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", text or "")
    if chosen is None:
        return unseen(check, "the kernel has none")
    if chosen[1] != "always":
        return ok(check, chosen[1])
    return warn(
        check,
        "always: the kernel stops a process to move its pages",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )


def swap(host: Host) -> Finding:
    """Whether pages may be where reading them takes milliseconds."""
    check = "swap"
    text = host.text("proc/swaps")
    if text is None:
        return unseen(check, "/proc/swaps does not tell")
    areas = [line.split()[0] for line in text.splitlines()[1:] if line.strip()]
    return warn(check, f"on {', '.join(areas)}", "swapoff -a") if areas else ok(check, "none")


def numa_balancing(host: Host) -> Finding:
    """Whether pages are unmapped to see who uses them."""
    check = "NUMA balancing"
    number = host.number("proc/sys/kernel/numa_balancing")
    if number is None:
        told = host.tells("proc/sys/kernel")
        return ok(check, "the kernel has none") if told else unseen(check, "/proc/sys does not tell")
    return warn(check, "on", "sysctl kernel.numa_balancing=0") if number else ok(check, "off")


def locked_memory(host: Host) -> Finding:
    """Whether the slots' buffers can be locked, so that they are never paged out."""
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return judge_locked(hard, _may_lock_all(host))


def judge_locked(limit_bytes: int, may_lock_all: bool) -> Finding:
    """`limit_bytes`: RLIM_INFINITY where there is none."""
    check = "locked memory"
    if limit_bytes == resource.RLIM_INFINITY or may_lock_all:
        return ok(check, "no limit")
    if limit_bytes >= LOCKED_BYTES_MIN:
        return ok(check, f"{limit_bytes // 2**20} MiB")
    return warn(check, f"at most {limit_bytes // 1024} KiB", "ulimit -l unlimited, or LimitMEMLOCK=infinity")


def _may_lock_all(host: Host) -> bool:
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)$", host.text("proc/self/status") or "", re.MULTILINE)
    return effective is not None and bool(int(effective[1], 16) & CAP_IPC_LOCK)


CHECKS: Final = (huge_pages, swap, numa_balancing, locked_memory)
