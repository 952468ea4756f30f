"""Where a load takes a model apart: in memory, which must not outlast whoever needs it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tickpath.server import loader

KILLED: Final = """
import sys, time
from tickpath.server import loader
loader.MEMORY_FOLDER = sys.argv[1]
with loader.memory_folder() as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_server_left_is_removed_and_what_one_is_at_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "MEMORY_FOLDER", str(tmp_path))
    (tmp_path / "others").mkdir()
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        (left / "weights").write_bytes(b"many")
        loader.remove_abandoned()
        assert left.exists()
        process.send_signal(signal.SIGKILL)
    with loader.memory_folder() as mine:
        loader.remove_abandoned()
        assert sorted(os.listdir(tmp_path)) == sorted([Path(str(mine)).name, "others"])
    assert os.listdir(tmp_path) == ["others"]


def test_without_such_a_place_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "MEMORY_FOLDER", str(tmp_path / "none"))
    loader.remove_abandoned()
    with loader.memory_folder() as folder:
        assert folder is None
