"""As much of a Dockerfile as ours use, read and, without an engine, done: its last stage is run in a root of its own
that bubblewrap makes, with the steps' own commands, environment, user and files."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "docker"
INSTALLED: Final = "/opt/tickpath"
# What the image has of its own, or the container gets.
OWN: Final = {"dev", "etc", "models", "opt", "proc", "run", "src", "sys", "tmp"}
# Of the machine's /etc, what running a program and asking a package index take.
ETC: Final = ("hosts", "ld.so.cache", "localtime", "nsswitch.conf", "pip.conf", "resolv.conf", "ssl")


@dataclass
class Stage:
    """What one FROM says."""

    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [text for name, text in self.steps if name == instruction]

    def one(self, instruction: str) -> str:
        (text,) = self.all(instruction)
        return text

    @property
    def environment(self) -> dict[str, str]:
        pairs = [word for text in self.all("ENV") for word in shlex.split(text)]
        return dict(pair.split("=", 1) for pair in pairs)

    @property
    def copied(self) -> list[tuple[list[str], str]]:
        """Sources and target of each COPY out of the context."""
        words = [text.split() for text in self.all("COPY") if not text.startswith("--from=")]
        return [(sources, target) for *sources, target in words]

    @property
    def command(self) -> list[str]:
        """ENTRYPOINT and CMD, which must be in the exec form."""
        return [*json.loads(self.one("ENTRYPOINT")), *json.loads(self.one("CMD"))]

    @property
    def health_command(self) -> list[str]:
        words: list[str] = json.loads(self.one("HEALTHCHECK").partition("CMD ")[2])
        return words


def stages(path: Path) -> list[Stage]:
    """All that a Dockerfile says."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: list[Stage] = []
    for line in filter(None, text.splitlines()):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append(Stage(rest))
        else:
            found[-1].steps.append((name, rest.strip()))
    return found


def copy(stage: Stage, to: Path, inside: str) -> None:
    """Put what the stage copies under `inside`, which is its working directory, into `to`."""
    for sources, target in stage.copied:
        if target.startswith("/") and not target.startswith(inside):
            continue
        for source in sources:
            place = to / target if not target.startswith("/") else to / Path(target).relative_to(inside)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place = place / source if target.endswith("/") else place
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / source, place)


def sandbox(binds: Sequence[str], *, root: bool = False) -> list[str]:
    """A command before the one to run: a read-only root with this machine's programs in it, process 1, no capability.

    `binds`: bubblewrap's own words for what else is there. `root`: in the stage that builds.
    """
    words = ["bwrap", "--die-with-parent"]
    for entry in sorted(set(os.listdir("/")) - OWN):
        path = f"/{entry}"
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    for name in ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-pid"]
    words += ["--ro-bind", str(ROOT), str(ROOT), *binds, "--remount-ro", "/"]  # a checkout may be in /tmp
    if root:
        return words
    return [*words, "--as-pid-1", "--unshare-user", "--unshare-net", "--cap-drop", "ALL", "--clearenv"]


def run_image(stage: Stage, installed: Path, models: Path, run: Path) -> list[str]:
    """A command that runs the image: `installed` is at /opt/tickpath, `models` and `run` are its volumes."""
    uid, gid = stage.one("USER").split(":")
    binds = ["--ro-bind", str(installed), INSTALLED, "--ro-bind", str(models), "/models"]
    binds += ["--bind", str(run), "/run/tickpath"]
    for (source,), target in stage.copied:
        if not target.startswith(INSTALLED):
            binds += ["--ro-bind", str(ROOT / source), target]
    words = [*sandbox(binds), "--uid", uid, "--gid", gid]
    for name, value in stage.environment.items():
        # The base image's Python is in /usr/local/bin; this machine's is where it is.
        words += ["--setenv", name, f"{value}:{sys.base_prefix}/bin" if name == "PATH" else value]
    return words


def hadolint(path: Path) -> str:
    """What the linter has to say."""
    command = [str(Path(sys.executable).with_name("hadolint")), "--failure-threshold", "style", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said: str = done.stdout + done.stderr
    return said
