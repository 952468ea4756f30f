"""Builds the C++ programs that the tests run, with the compiler that is there, g++ unless CXX names another."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CPP: Final = ROOT / "clients" / "cpp"

STRICT: Final = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
# Unoptimised: that builds in a sixth of the time.
SANITIZED: Final = ("-g", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
INCLUDES: Final = (f"-I{CPP / 'include'}", f"-I{CPP / 'tools'}")

# What is built, and how. Without exceptions and run-time types too, as some trading systems are.
PROGRAMS: Final[dict[str, tuple[Path, tuple[str, ...]]]] = {
    "driver": (ROOT / "tests/cpp/driver.cpp", SANITIZED),
    "vectors": (CPP / "tools/vectors.cpp", SANITIZED),
    "allocations": (ROOT / "tests/cpp/allocations.cpp", ("-O2", "-fno-exceptions", "-fno-rtti")),
    "latency": (CPP / "tools/latency.cpp", ("-O2",)),
    "predict": (CPP / "examples/predict.cpp", ("-O0",)),
}


def compiler() -> str:
    """The C++ compiler. It must be there: these tests are not skipped."""
    found = shutil.which(os.environ.get("CXX", "g++"))
    assert found, "the C++ client's tests need g++, or a compiler named by CXX"
    return found


def build_programs(folder: Path) -> dict[str, Path]:
    """All of them, two at a time; a warning is an error."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(PROGRAMS, pool.map(lambda name: _build(name, folder / name), PROGRAMS), strict=True))


def _build(name: str, out: Path) -> Path:
    source, flags = PROGRAMS[name]
    command = [compiler(), *STRICT, *flags, *INCLUDES, str(source), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return out
