"""The images: linted, in keeping with the package, and their last stage run as a container would be: process 1, a user
that is nobody, a read-only root, no environment."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.deploy.dockerfile import FOLDER, ROOT, Stage, hadolint, sandbox, stages
from tests.deploy.image import check_image
from tests.processes import children

DOCKERFILES = sorted(FOLDER.glob("*.Dockerfile"))


def of(file: Path) -> tuple[Stage, Stage]:
    build, last = stages(file)
    return build, last


def extras_of(build: Stage) -> set[str]:
    found = re.search(r"'\.\[([\w,-]+)\]'", build.one("RUN"))
    assert found, build.one("RUN")
    return set(found[1].split(","))


def test_there_is_one_for_the_cpu_and_one_for_a_gpu() -> None:
    assert [file.name for file in DOCKERFILES] == ["cpu.Dockerfile", "gpu.Dockerfile"]


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_the_linter_has_nothing_to_say(file: Path) -> None:
    assert hadolint(file) == ""


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_it_installs_what_the_package_offers_pinned(file: Path) -> None:
    """Extras that are there, with the pins that were tried, for the build itself too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    build, last = of(file)
    extras = extras_of(build)
    assert extras <= set(project["optional-dependencies"])
    assert extras - {"openvino", "tensorrt"} == {"server", "door"}
    assert build.environment["PIP_CONSTRAINT"] == "/src/constraints.txt"
    assert (["pyproject.toml", "constraints.txt", "README.md"], "./") in build.copied
    python = re.fullmatch(r"python:(3\.\d+)-slim-\w+ AS build", build.base)
    assert python, "a tag that says which Python"
    assert last.base == build.base.removesuffix(" AS build")
    assert tuple(map(int, python[1].split("."))) >= (3, 11)


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_it_copies_all_that_the_wheel_is_made_of(file: Path) -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*build["packages"], *build["force-include"]]
    copied = [source for sources, _ in of(file)[0].copied for source in sources]
    assert [path for path in needed if not any(Path(path).is_relative_to(source) for source in copied)] == []


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_it_runs_as_nobody_without_a_shell_in_between(file: Path) -> None:
    _, last = of(file)
    uid, gid = map(int, last.one("USER").split(":"))
    assert uid > 0
    assert gid > 0
    assert last.command[:2] == ["tickpath", "serve"]
    assert last.health_command[0] == "python"
    assert last.one("STOPSIGNAL") == "SIGTERM"


def test_the_two_differ_in_what_a_gpu_takes_alone() -> None:
    cpu, gpu = (of(file) for file in DOCKERFILES)
    assert cpu[0].steps[:-1] == gpu[0].steps[:-1]
    assert [step for step in gpu[1].steps if step not in cpu[1].steps] == [
        ("ENV", "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    ]
    assert [step for step in cpu[1].steps if step not in gpu[1].steps] == []


def test_the_compose_example_runs_it_as_it_should() -> None:
    server = yaml.safe_load((FOLDER / "compose.yml").read_text())["services"]["tickpath"]
    config = tomllib.loads((FOLDER / "tickpath.toml").read_text())
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert (FOLDER / server["build"]["context"] / server["build"]["dockerfile"]).is_file()
    assert int(server["stop_grace_period"].removesuffix("s")) > config["drain_s"]
    folders = {str(Path(config[key]).parent) for key in ("uds", "admin")}
    assert folders <= {mount.partition(":")[0] for mount in server["tmpfs"]}
    assert config["repository"] in {mount.split(":")[1] for mount in server["volumes"]}
    _, last = of(FOLDER / "cpu.Dockerfile")
    uid, gid = last.one("USER").split(":")
    assert f"/run/tickpath:uid={uid},gid={gid},mode=0700" in server["tmpfs"]


def test_the_last_stage_serves_as_a_container(tmp_path: Path) -> None:
    """With this checkout's installation; `make test-image` builds one by the first stage."""
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "bin").symlink_to(Path(sys.prefix, "bin"))
    check_image(of(FOLDER / "cpu.Dockerfile")[1], installed, tmp_path)


ORPHANS = """
import os, subprocess, sys, time
from pathlib import Path
from tickpath.console.first_process import run_as_child

if (code := run_as_child()) is not None:
    sys.exit(code)
assert os.getppid() == 1
# Two orphans that have ended, and one that lives on.
subprocess.run(["sh", "-c", "(exit 3) & (exit 4) & sleep 1000 &"])

def states():
    return [stat.read_text().rpartition(")")[2].split()[0] for stat in Path("/proc").glob("[0-9]*/stat")]

while "Z" in states():
    time.sleep(0.01)
assert len(states()) == 3, "process 1, this one, and the orphan that lives"
{end}
"""


@pytest.mark.parametrize(("end", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_process_1_takes_in_orphans_and_ends_as_the_server_does(end: str, code: int) -> None:
    program = ORPHANS.replace("{end}", end)
    done = subprocess.run([*sandbox([]), sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")


PASSED_ON = """
import signal, sys
from tickpath.console.first_process import run_as_child

if (code := run_as_child()) is not None:
    sys.exit(code)
signal.signal(signal.SIGHUP, lambda *_: print("HUP", flush=True))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_process_1_passes_signals_on() -> None:
    with subprocess.Popen([*sandbox([]), sys.executable, "-c", PASSED_ON], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (first,) = children(process.pid)
        os.kill(first, signal.SIGHUP)
        assert process.stdout.readline() == b"HUP\n"
        os.kill(first, signal.SIGTERM)
        assert process.wait(30) == 5


def test_without_being_process_1_nothing_is_forked() -> None:
    program = "import os; from tickpath.console.first_process import run_as_child as run; print(run(), os.getpid())"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate()[0] == f"None {process.pid}\n"
