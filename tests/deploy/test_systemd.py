"""The unit, by systemd's own checks, and by what the server needs of it."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.deploy.rules import ROOT

from tickpath.server.config import ServerConfig

UNIT = ROOT / "deploy" / "systemd" / "tickpath.service"
# systemd's scale is 0 to 100 here; below 40 it says "OK". What is left open is the network, and what a runtime needs.
EXPOSURE_MAX = 20
# Exit codes that the next start can't mend; 6, a lost device, is one that it can.
FOR_GOOD = {"2", "3", "4"}


def settings() -> dict[str, list[str]]:
    """Key -> values of the unit, in order."""
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def seconds(span: str) -> float:
    """A time span of one unit, as systemd writes it."""
    number, unit = re.fullmatch(r"(\d+)(min|s)?", span).groups()  # type: ignore[union-attr]
    return float(number) * (60 if unit == "min" else 1)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit as it is, with a program that this machine has."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/opt/tickpath/bin/tickpath", "/bin/true"))
    return path


def analyze(*arguments: str | Path) -> str:
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_understands_every_line(unit: Path) -> None:
    assert analyze("verify", unit) == ""


def test_a_line_it_does_not_know_would_be_seen(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("LimitNOFILE", "LimitNOFILES"))
    assert "LimitNOFILES" in analyze("verify", unit)


def test_it_is_hardened(unit: Path) -> None:
    analyze("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", unit)


def test_it_is_told_of_readiness_and_watches_the_loop() -> None:
    unit = settings()
    assert unit["Type"] == ["notify"]
    assert unit["NotifyAccess"] == ["main"]
    # Housekeeping feeds it ten times a second at most; and it may not be shorter than the observer's own patience.
    assert seconds(unit["WatchdogSec"][0]) >= 10
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert unit["Restart"] == ["on-failure"]
    assert set(unit["RestartPreventExitStatus"][0].split()) == FOR_GOOD


def test_it_has_time_to_drain() -> None:
    assert seconds(settings()["TimeoutStopSec"][0]) > ServerConfig().drain_s


def test_it_has_processors_memory_and_descriptors() -> None:
    unit = settings()
    assert len(unit["CPUAffinity"][0].split()) >= 2
    assert unit["LimitMEMLOCK"] == ["infinity"]
    assert int(unit["LimitNOFILE"][0]) > ServerConfig().sessions_max
    assert int(unit["Nice"][0]) < 0


def test_what_the_server_calls_is_allowed() -> None:
    """What its seccomp filter must let through: names that our own code calls, and those of the interpreter's libraries
    for them."""
    allowed = system_calls("@system-service") - system_calls("@privileged")
    needed = {"memfd_create", "pidfd_open", "sched_setaffinity", "sched_getaffinity", "setpriority", "prctl", "mlock2"}
    needed |= {"epoll_pwait", "io_setup", "sendto", "waitid", "wait4", "prlimit64", "flock", "mbind", "eventfd2"}
    assert needed - allowed == set()


def system_calls(group: str) -> set[str]:
    """The calls of a group, those of the groups in it too."""
    calls: set[str] = set()
    for word in re.findall(r"^    ([@\w-]+)$", analyze("syscall-filter", group), re.MULTILINE):
        calls |= system_calls(word) if word.startswith("@") else {word}
    return calls


def test_the_command_is_one_that_there_is() -> None:
    (command,) = settings()["ExecStart"]
    assert command.split()[:3] == ["/opt/tickpath/bin/tickpath", "serve", "--config"]
    image = tomllib.loads((ROOT / "deploy" / "docker" / "tickpath.toml").read_text())
    runtime = settings()["RuntimeDirectory"][0]
    assert {Path(image[key]).parent for key in ("uds", "admin")} == {Path("/run", runtime)}
