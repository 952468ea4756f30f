"""libFuzzer on the client's reading side, a little of it at each run, where clang++ and its runtime are there.
TICKPATH_FUZZ_SECONDS=600 makes it a campaign."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import msgspec
import pytest
from tests.cpp.building import INCLUDES, ROOT, STRICT
from tests.wire.vectors import FOLDER, MessageVectors

RUNS: Final = 100_000
SECONDS: Final = int(os.environ.get("TICKPATH_FUZZ_SECONDS", "0"))
FLAGS: Final = ("-g", "-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")
EMPTY: Final = (
    '#include <cstddef>\nextern "C" int LLVMFuzzerTestOneInput(const unsigned char*, std::size_t) { return 0; }\n'
)


def clang() -> str | None:
    """Debian's clang-14 brings clang++-14 alone."""
    names = ("clang++", *(f"clang++-{version}" for version in range(25, 10, -1)))
    return next((name for name in names if shutil.which(name)), None)


def build(compiler: str, source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [compiler, *STRICT, *FLAGS, *INCLUDES, str(source), "-o", str(out)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.timeout(120 + SECONDS)
def test_no_reply_is_too_odd_for_the_reader(tmp_path: Path) -> None:
    compiler = clang()
    if compiler is None:
        pytest.skip("no clang++ is there")
    (tmp_path / "empty.cpp").write_text(EMPTY)
    if build(compiler, tmp_path / "empty.cpp", tmp_path / "empty").returncode:
        pytest.skip(f"{compiler} can't link libFuzzer: install its runtime (libclang-rt-*-dev)")
    built = build(compiler, ROOT / "tests/cpp/fuzz_replies.cpp", tmp_path / "fuzz")
    assert built.returncode == 0, built.stderr
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    vectors = msgspec.json.decode((FOLDER / "server.json").read_bytes(), type=MessageVectors)
    frames = [vector.frame for vector in vectors.valid] + [vector.frame for vector in vectors.invalid]
    for number, frame in enumerate(frames):
        (corpus / str(number)).write_bytes(bytes([number % 256]) + bytes.fromhex(frame))
    limit = f"-max_total_time={SECONDS}" if SECONDS else f"-runs={RUNS}"
    command = [str(tmp_path / "fuzz"), limit, "-max_len=4096", f"-artifact_prefix={tmp_path}/", str(corpus)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
