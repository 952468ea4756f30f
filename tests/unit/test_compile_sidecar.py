"""What stands beside a plan says all of it, and no damage to it goes unseen."""

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plans import PARITY, RECIPE, make_sidecar

from tickpath.engines.compile.options import CompileOptions
from tickpath.engines.compile.sidecar import Recipe, SidecarError, decode_sidecar, encode_sidecar

CONTENT = encode_sidecar(make_sidecar(b"plan"))


def test_round_trip() -> None:
    sidecar = make_sidecar(b"plan", notes=("a note",))
    assert decode_sidecar(encode_sidecar(sidecar)) == sidecar
    assert sidecar.parity == PARITY


def test_it_is_json_for_others() -> None:
    read = msgspec.json.decode(CONTENT)
    assert read["sidecar"]["recipe"]["options"]["buckets"] == [1, 2]


def test_the_spec_comes_back() -> None:
    spec = RECIPE.spec("float32", RECIPE.source_sha256)
    assert spec.describe() == "x float32[N,4] -> y float32[N,3]"
    assert spec.buckets == (1, 2)


@given(place=st.integers(0, len(CONTENT) - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_is_seen(place: int, bit: int) -> None:
    damaged = bytearray(CONTENT)
    damaged[place] ^= 1 << bit
    with pytest.raises(SidecarError):
        decode_sidecar(bytes(damaged))


@pytest.mark.parametrize("length", range(0, len(CONTENT), 7))
def test_cut_anywhere(length: int) -> None:
    with pytest.raises(SidecarError):
        decode_sidecar(CONTENT[:length])


@pytest.mark.parametrize("content", [b"{}", b"null", b"\x00" * 100, b'{"seal": "", "sidecar":\n{}}\n'])
def test_what_is_no_sidecar(content: bytes) -> None:
    with pytest.raises(SidecarError):
        decode_sidecar(content)


def test_of_another_release() -> None:
    text = msgspec.json.encode({"format": 2})

    content = b'{"seal": "%s", "sidecar":\n%s}\n' % (hashlib.sha256(text).hexdigest().encode(), text)
    with pytest.raises(SidecarError, match="another release"):
        decode_sidecar(content)


@pytest.mark.parametrize(
    "other",
    [
        msgspec.structs.replace(RECIPE, source_sha256="0" * 64),
        msgspec.structs.replace(RECIPE, runtime="tensorrt-rtx 1.8"),
        msgspec.structs.replace(RECIPE, outputs=RECIPE.inputs),
        msgspec.structs.replace(RECIPE, rows_fixed=2),
        *(
            msgspec.structs.replace(RECIPE, options=options)
            for options in (
                CompileOptions("tensorrt", (1, 2)),
                CompileOptions("tensorrt-rtx", (1, 4)),
                CompileOptions("tensorrt-rtx", (1, 2), "fp16"),
                CompileOptions("tensorrt-rtx", (1, 2), targets=("sm89",)),
                CompileOptions("tensorrt-rtx", (1, 2), shapes={"x": ("N", 4)}),
                CompileOptions("tensorrt-rtx", (1, 2), optimization_level=3),
                CompileOptions("tensorrt-rtx", (1, 2), timing_iterations=1),
                CompileOptions("tensorrt-rtx", (1, 2), aux_streams=1),
            )
        ),
    ],
)
def test_the_key_changes_with_everything(other: Recipe) -> None:
    assert other.key != RECIPE.key == msgspec.structs.replace(RECIPE).key
