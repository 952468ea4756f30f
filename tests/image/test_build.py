"""The CPU image, built as its Dockerfile says but for the engine: the first stage's command in a root of its own, with
what it copies, and the last stage on what came of it."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.deploy.dockerfile import FOLDER, copy, sandbox, stages
from tests.deploy.image import check_image


@pytest.mark.timeout(900)  # some 400 MB from a package index
def test_both_stages(tmp_path: Path) -> None:
    build, last = stages(FOLDER / "cpu.Dockerfile")
    source, opt = tmp_path / "src", tmp_path / "opt"
    source.mkdir()
    opt.mkdir()
    copy(build, source, build.one("WORKDIR"))
    box = sandbox(["--bind", str(source), "/src", "--bind", str(opt), "/opt", "--chdir", "/src"], root=True)
    for name, value in build.environment.items():
        box += ["--setenv", name, value]
    box += ["--setenv", "PATH", f"{sys.base_prefix}/bin:/usr/bin:/bin"]
    subprocess.run([*box, "sh", "-ec", build.one("RUN")], check=True)
    check_image(last, opt / "tickpath", tmp_path)
    imported = "import sys, tickpath.engines; assert tickpath.engines.__file__.startswith(sys.prefix), tickpath.engines"
    inside = sandbox(["--ro-bind", str(opt), "/opt"])
    subprocess.run([*inside, "/opt/tickpath/bin/python", "-c", imported], check=True)
