"""Builds the simulated CUDA driver with the C compiler: a libcuda.so.1 for LD_LIBRARY_PATH.

python -m tests.sim.cuda.build      prints the folder that holds it
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
SOURCES: Final = Path(__file__).with_name("driver")
# memfd, dladdr and clocks are the system's, beyond C11's own library.
FLAGS: Final = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wl,-Bsymbolic")


class BuildError(Exception):
    """The C compiler is missing or refused the sources; the text is its own."""


def build() -> Path:
    """The folder with a libcuda.so.1 of the sources as they are; built where it is not there yet. Raises BuildError."""
    files = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files) + " ".join(FLAGS).encode())
    folder = ROOT / "build" / f"sim-cuda-{digest.hexdigest()[:16]}"
    if not (folder / "libcuda.so.1").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _compile([str(file) for file in files if file.suffix == ".c"], folder / "libcuda.so.1")
    return folder


def _compile(sources: list[str], library: Path) -> None:
    made = library.with_name(f"libcuda.{os.getpid()}")  # renamed when whole: others may build at the same time
    command = [os.environ.get("CC", "cc"), *FLAGS, "-fPIC", "-shared", "-pthread", "-o", str(made), *sources, "-ldl"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BuildError(f"the simulated CUDA driver needs a C compiler; {command[0]} is not there: set CC") from error
    if done.returncode != 0:
        raise BuildError(f"the simulated CUDA driver does not compile:\n{done.stderr}")
    made.replace(library)


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
