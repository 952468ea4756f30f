"""A timing cache is a help: whatever is wrong with one is named, and a build does without."""

from pathlib import Path

import pytest

from tickpath.engines.compile.timing_cache import TimingCacheError, read_timing_cache, write_timing_cache

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
