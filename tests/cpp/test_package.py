"""The CMake package: `find_package(tickpath)` in somebody else's project."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.cpp.building import CPP

PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(desk LANGUAGES CXX)
find_package(tickpath 0.1 REQUIRED)
add_executable(desk desk.cpp)
target_link_libraries(desk PRIVATE tickpath::tickpath)
"""
PROGRAM = """
#include <tickpath/client.hpp>
int main() { return tickpath::Client().connect("nowhere") == tickpath::Status::bad_address ? 0 : 1; }
"""


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not there")
def test_find_package_works(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "desk.cpp").write_text(PROGRAM)
    run(
        "-S",
        CPP,
        "-B",
        tmp_path / "package",
        "-DTICKPATH_PROGRAMS=OFF",
        f"-DCMAKE_INSTALL_PREFIX={tmp_path / 'installed'}",
    )
    run("--install", tmp_path / "package")
    run("-S", tmp_path, "-B", tmp_path / "desk", f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}")
    run("--build", tmp_path / "desk")
    assert subprocess.run([tmp_path / "desk" / "desk"], timeout=10, check=False).returncode == 0


def run(*words: str | Path) -> None:
    done = subprocess.run(["cmake", *words], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
