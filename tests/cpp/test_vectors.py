"""The C++ codec and the shared vectors, and `tickpath vectors verify` itself; then frames that nobody wrote down."""

import json
import random
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest
from tests.wire.vectors import FOLDER, MessageVectors

from tickpath.console.vectors import Program
from tickpath.wire import PREFIX_BYTES, RemoteProtocolError, decode_server_message

SEED: Final = 20_261_201
MUTATIONS: Final = 6_000
HEADS: Final = bytes([0x80, 0x90, 0x9F, 0xA0, *range(0xC0, 0xE0), 0x00, 0x7F, 0xFF])


def verify(*command: str | Path) -> tuple[int, str]:
    words = [sys.executable, "-m", "tickpath.cli", "vectors", "verify", *map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_client_passes_all_it_speaks(programs: dict[str, Path]) -> None:
    code, said = verify(programs["vectors"])
    assert code == 0, said
    rows = {line[:16].strip(): line[16:].split() for line in said.splitlines()}
    for group in ("encode client", "decode server", "refuse server", "frames"):
        right, wrong, unsupported = map(int, rows[group])
        assert right > 10
        assert wrong == unsupported == 0


def test_what_is_wrong_is_shown(programs: dict[str, Path]) -> None:
    """A program that says every Pong's clock is one more than it is."""
    program = f'exec {programs["vectors"]} | sed -u \'s/"server_ns": 1000000000000/"server_ns": 1000000000001/\''
    code, said = verify(f"sh -c {shlex.quote(program)}", "--json")
    assert code == 1
    assert "server_ns: expected 1000000000000, got 1000000000001" in said


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("/nowhere/at-all", 2, "can't be run"),
        ("true", 1, "ended with 0 before it was told to"),
        ("sed -u s/.*/unsupported/", 1, "unsupported"),
        ("cat", 1, "expected JSON, got decode"),
    ],
)
def test_programs_that_say_nothing_right(command: str, code: int, says: str) -> None:
    found, said = verify(command)
    assert found == code
    assert says in said


def test_both_languages_take_and_refuse_the_same(programs: dict[str, Path]) -> None:
    """Valid and invalid frames with bytes changed, cut out, put in and doubled. The program runs with sanitizers, so a
    read out of bounds ends it."""
    vectors = msgspec.json.decode((FOLDER / "server.json").read_bytes(), type=MessageVectors)
    frames = [vector.frame for vector in vectors.valid] * 3 + [vector.frame for vector in vectors.invalid]
    bodies = [bytes.fromhex(frame)[PREFIX_BYTES:] for frame in frames]
    rng = random.Random(SEED)
    types = {str(vector.message["type"]) for vector in vectors.valid}
    with subprocess.Popen([programs["vectors"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        program = Program(process)
        taken = sum(_agreed(program, types, _mutated(rng, rng.choice(bodies))) for _ in range(MUTATIONS))
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
    assert MUTATIONS // 20 < taken < MUTATIONS - MUTATIONS // 20  # both happen, else this shows nothing


def _mutated(rng: random.Random, body: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(rng.randrange(1, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.choice(HEADS)])
            case 1:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 2:
                del data[at : at + rng.randrange(4)]
            case 3:
                data[at:at] = bytes([rng.choice(HEADS)])
            case _:
                data[at:at] = data[at : at + rng.randrange(16)]
    return bytes(data)


def _agreed(program: Program, types: set[str], body: bytes) -> bool:
    """Whether the frame was taken, by both. What is of a type that the vectors do not have is of a later protocol, and
    need not be known to both."""
    answer = program.ask(f"decode server {len(body).to_bytes(4, 'little').hex()}{body.hex()}")
    refused = answer == "refused BAD_MESSAGE"
    if not refused and json.loads(answer)["type"] not in types:
        return False
    try:
        decode_server_message(memoryview(body))
    except RemoteProtocolError:
        taken = False
    else:
        taken = True
    assert refused is not taken, f"{body.hex()}: {answer}"
    return taken
