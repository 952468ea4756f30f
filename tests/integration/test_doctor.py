"""`tickpath doctor` on this very machine."""

import json
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCTOR = (sys.executable, "-m", "tickpath.cli", "doctor")


def run(*arguments: str, open_files: int | None = None) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        if open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

    return subprocess.run(
        [*DOCTOR, *arguments], capture_output=True, text=True, timeout=60, check=False, preexec_fn=limit
    )


def test_it_measures_and_finds_this_host_usable() -> None:
    done = run("--seconds", "0.2", "--json")
    told = json.loads(done.stdout)
    found = {finding["check"]: finding for finding in told["findings"]}
    assert "worst" in found["hiccups"]["found"]
    assert "3,000 blocking round trips" in found["TCP floor"]["found"]
    assert sum(told["counts"].values()) == len(told["findings"]) == 22
    assert done.returncode == (1 if told["counts"]["fail"] else 0)


def test_its_json_is_as_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "OPERATING.md").read_text()
    example = re.search(r'{"findings":.*?}}', text, re.DOTALL)
    assert example
    documented, told = json.loads(example[0]), json.loads(run("--seconds", "0", "--json").stdout)
    assert told.keys() == documented.keys()
    assert told["counts"].keys() == documented["counts"].keys()
    for finding in told["findings"]:
        assert finding.keys() == documented["findings"][0].keys()
        assert finding["verdict"] in documented["counts"]
        assert bool(finding["remedy"]) == (finding["verdict"] in ("warn", "fail"))


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap, which takes /proc away, is not installed")
def test_without_proc_it_says_what_it_does_not_see() -> None:
    sandbox = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/proc", "--unshare-user", "--uid", "65534"]
    command = [*sandbox, *DOCTOR, "--seconds", "0", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    verdicts = {finding["check"]: finding["verdict"] for finding in json.loads(done.stdout)["findings"]}
    unseen = {check for check, verdict in verdicts.items() if verdict == "unseen"}
    assert {"stolen time", "swap", "NUMA balancing", "cgroup quota", "timer slack", "NVIDIA driver"} <= unseen


def test_what_fails_is_the_exit_code_and_names_its_remedy() -> None:
    done = run("--seconds", "0", open_files=64)
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if "open files" in line]
    assert "fail" in line
    assert "ulimit -n 65536" in line


def test_strict_fails_for_a_warning() -> None:
    told = json.loads(run("--seconds", "0", "--json", open_files=500).stdout)
    assert told["counts"]["warn"] > 0
    assert run("--seconds", "0", "--strict", open_files=500).returncode == 1


def test_a_processor_that_it_may_not_use_is_named() -> None:
    done = run("--cpu", "4095")
    assert done.returncode == 1
    assert done.stderr.startswith("tickpath: --cpu 4095: this process may use [")
