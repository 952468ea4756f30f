"""The C floor's own command line: numbers are whole, or refused before anything is opened."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "bench" / "floor.c"


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None:
        pytest.skip("no C compiler: set CC")
    binary = tmp_path_factory.mktemp("floor") / "floor"
    subprocess.run([compiler, "-O2", "-std=gnu11", "-o", str(binary), str(SOURCE)], check=True)
    return binary


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("serve 127.0.0.1:7601 100", "a port is a whole number from 0 to 65535, '127.0.0.1:7601' came"),
        ("serve 70000 100", "'70000' came"),
        ("serve -1 100", "'-1' came"),
        ("serve 0 3", "REPLY_BYTES is a whole number from 4 to 67108864, '3' came"),
        ("serve 0 100 --touch 1e3", "PAGES is a whole number"),
        ("ping 7x samples 1 0 frame", "'7x' came"),
        ("ping 7 samples 10k 0 frame", "COUNT is a whole number"),
        ("ping 7 samples 1 '' frame", "WARMUP is a whole number"),
        ("ping 7 samples 1 0 frame --rate 1k", "--rate is a number above zero, '1k' came"),
    ],
)
def test_what_is_no_number_is_refused(floor: Path, arguments: str, said: str) -> None:
    command = [str(floor), *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


def test_a_port_alone_is_served(floor: Path) -> None:
    with subprocess.Popen([str(floor), "serve", "0", "100"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert 0 < int(process.stdout.readline()) <= 65535
        finally:
            process.kill()
