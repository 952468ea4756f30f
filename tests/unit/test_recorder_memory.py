"""How much memory there is for a ring: the machine's, or what is left of a control group's, by files as kernels write
them."""

from pathlib import Path

import pytest

from tickpath.server.memory import available_bytes

MIB = 1 << 20
MEMINFO = "MemTotal:       24683652 kB\nMemAvailable:   1048576 kB\nHugePages_Total:       0\n"
V2 = {"proc/self/cgroup": "0::/pod/core\n", "proc/self/mountinfo": "30 23 0:26 / /cg rw - cgroup2 cgroup rw\n"}
V1 = {
    "proc/self/cgroup": "4:memory:/pod\n1:cpu,cpuacct:/elsewhere\n0::/\n",
    "proc/self/mountinfo": "31 23 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n",
}
NO_LIMIT_V1 = 0x7FFFFFFFFFFFF000


def available(root: Path, files: dict[str, str]) -> int | None:
    """On a machine with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return available_bytes(root / "proc", root)


def version_2(group: str, limit: str, used: int, stat: str = "") -> dict[str, str]:
    return {f"{group}/memory.max": f"{limit}\n", f"{group}/memory.current": f"{used}\n", f"{group}/memory.stat": stat}


def version_1(group: str, limit: int, used: int, stat: str = "") -> dict[str, str]:
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
    return {f"{group}/{name}": f"{text}\n" for name, text in zip(names, (limit, used, stat), strict=True)}


def test_without_a_limit_it_is_the_machines(tmp_path: Path) -> None:
    meminfo = {"proc/meminfo": MEMINFO}
    assert available(tmp_path / "none", meminfo) == 1024 * MIB
    assert available(tmp_path / "two", meminfo | V2 | version_2("cg/pod/core", "max", MIB)) == 1024 * MIB
    assert available(tmp_path / "one", meminfo | V1 | version_1("cg/memory/pod", NO_LIMIT_V1, MIB)) == 1024 * MIB


def test_a_groups_limit_counts_less_what_is_used_but_for_pages_of_files(tmp_path: Path) -> None:
    meminfo = {"proc/meminfo": MEMINFO}
    two = version_2("cg/pod/core", str(512 * MIB), 300 * MIB, f"inactive_file {20 * MIB}\nactive_file {MIB}\n")
    assert available(tmp_path / "two", meminfo | V2 | two) == 233 * MIB
    stat = f"inactive_file {MIB}\nactive_file 0\ntotal_inactive_file {20 * MIB}\ntotal_active_file {MIB}"
    one = version_1("cg/memory/pod", 512 * MIB, 300 * MIB, stat)
    assert available(tmp_path / "one", meminfo | V1 | one) == 233 * MIB


def test_the_least_of_all_groups_above_counts(tmp_path: Path) -> None:
    files = {"proc/meminfo": MEMINFO} | V2 | version_2("cg/pod/core", "max", MIB)
    assert available(tmp_path, files | version_2("cg/pod", str(64 * MIB), 4 * MIB)) == 60 * MIB
    assert available(tmp_path, version_2("cg/pod/core", str(5 * MIB), 6 * MIB)) == 0


@pytest.mark.parametrize("meminfo", [{}, {"proc/meminfo": "MemTotal: 5 kB\n"}, {"proc/meminfo": "what is this"}])
def test_what_is_not_told_is_not_known(tmp_path: Path, meminfo: dict[str, str]) -> None:
    assert available(tmp_path, meminfo) is None
    assert available(tmp_path, V2 | version_2("cg/pod", str(MIB), 0)) == MIB
