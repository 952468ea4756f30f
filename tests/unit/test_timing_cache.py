"""A timing cache is a help: whatever is wrong with one is named, and a build does without."""

from pathlib import Path

import pytest
from tests.stand_in_tensorrt import stand_in

from tickpath.engines import zoo
from tickpath.engines.compile import CompileOptions, compile_model, compiling, on_tensorrt
from tickpath.engines.compile.timing_cache import TimingCacheError, read_timing_cache, write_timing_cache
from tickpath.engines.compile.worker import BuildJob, Done

RUNTIME = "tensorrt 11.4.0"
CONTENT = b"\x00\n | \xff" * 50


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "timing.cache"
    write_timing_cache(path, RUNTIME, CONTENT)
    return path


def test_round_trip(path: Path) -> None:
    assert read_timing_cache(path, RUNTIME) == CONTENT
    assert read_timing_cache(path.with_name("none"), RUNTIME) == b""


def test_of_another_release(path: Path) -> None:
    with pytest.raises(TimingCacheError, match=r"is of tensorrt 11\.4\.0, this is tensorrt 11\.5\.0"):
        read_timing_cache(path, "tensorrt 11.5.0")


@pytest.mark.parametrize("place", range(0, 400, 3))
def test_any_damage_is_seen(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(TimingCacheError, match=r"timing\.cache: "):
        read_timing_cache(path, RUNTIME)


@pytest.mark.parametrize("length", [0, 1, 20, 60, 130, 300])
def test_cut_anywhere(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(TimingCacheError):
        read_timing_cache(path, RUNTIME)


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TimingCacheError, match="Is a directory"):
        read_timing_cache(tmp_path, RUNTIME)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What each build is given of a TensorRT that keeps a timing cache; each learns a little more."""
    seen: list[bytes] = []

    def run_build(job: BuildJob, _watcher: object) -> Done:
        seen.append(job.timing_cache)
        Path(job.plan_path).write_bytes(b"plan")
        return Done(job.timing_cache + b"learnt", ())

    monkeypatch.setattr(compiling, "find_tensorrt", lambda _name: stand_in(rtx=False))
    monkeypatch.setattr(on_tensorrt, "run_build", run_build)
    return seen


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        (b"", "not a timing cache of ours"),
        (b"PK\x03\x04 something else", "not a timing cache of ours"),
        (b"tickpath timing cache 1 | tensorrt 10.0 | 0\n", "is damaged or truncated"),
        (None, ""),
    ],
)
def test_a_build_does_without_it_and_leaves_a_good_one(
    given: list[bytes], tmp_path: Path, spoilt: bytes | None, says: str
) -> None:
    source, cache = tmp_path / "mlp.onnx", tmp_path / "cache"
    source.write_bytes(zoo.build("mlp").SerializeToString())
    if spoilt is not None:
        cache.write_bytes(spoilt)
    notes = [
        compile_model(
            source, tmp_path / "mlp.plan", CompileOptions("tensorrt", (1,)), timing_cache=cache, force=True
        ).notes
        for _ in range(2)
    ]
    assert given == [b"", b"learnt"]
    assert [says in note for note in notes[0]] == [True] * len(notes[0])
    assert (len(notes[0]), notes[1]) == (spoilt is not None, ())
