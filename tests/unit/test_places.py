"""Places: what a version is called, and where it stands in the records, for ever."""

import re

import msgspec
import pytest
from tests.versions import catalogue_of, make_version

from tickpath.observe.reader import RecordReader
from tickpath.observe.records import VERSIONS_MAX, RecordWriter
from tickpath.server.config import NAME_PATTERN, ModelConfig
from tickpath.server.places import Place, Places, PlacesFullError


def config(name: str = "btc", version: str = "7") -> ModelConfig:
    return ModelConfig(f"{name}.onnx", version=version)


def take(places: Places, of: ModelConfig, digest: str) -> Place:
    place = places.find(of, digest)
    places.take(place, make_version(of.served_name, place.label, place=place.index))
    return place


def test_other_content_under_one_name_has_another_label_and_the_same_content_its_own_again() -> None:
    places = Places()
    first, second, third = (take(places, config(), digest) for digest in ("red", "green", "blue"))
    assert [place.label for place in (first, second, third)] == ["7", "7-r2", "7-r3"]
    assert [place.index for place in (first, second, third)] == [0, 1, 2]
    assert [take(places, config(), digest) for digest in ("green", "red", "blue")] == [second, first, third]
    assert second.digest == "green"


@pytest.mark.parametrize("order", [("7-r2", "7", "7"), ("7", "7", "7-r2"), ("7", "7-r2", "7")])
def test_a_folder_that_is_called_as_a_revision_is_told_apart_from_it(order: tuple[str, ...]) -> None:
    places = Places()
    taken = [take(places, config(version=version), str(number)) for number, version in enumerate(order)]
    assert len({place.label for place in taken}) == len(order), taken


def test_a_label_is_a_name_however_long_the_version() -> None:
    places = Places()
    longest = [config(version="v" * 63 + last) for last in "ab"]
    labels = [take(places, each, digest).label for digest in ("red", "green") for each in longest]
    assert labels[2:] == ["v" * 61 + "-r2", "v" * 61 + "-r3"]
    assert all(re.match(NAME_PATTERN, label) for label in labels)


def test_versions_and_models_are_told_apart_by_name_whatever_they_hold() -> None:
    places = Places()
    taken = [take(places, each, "red") for each in (config(), config(version="8"), config("eth"))]
    assert [(place.index, place.label) for place in taken] == [(0, "7"), (1, "8"), (2, "7")]


def test_a_load_that_fails_takes_no_place() -> None:
    places = Places()
    take(places, config(), "red")
    assert [places.find(config(), "bad").label for _ in range(3)] == ["7-r2"] * 3
    assert take(places, config(), "good") == Place(1, "7-r2", ("btc", "7", "good"))


def test_when_all_places_are_taken_those_that_are_known_still_are() -> None:
    places = Places()
    known = [take(places, config(), str(number)) for number in range(VERSIONS_MAX)]
    with pytest.raises(PlacesFullError, match="restart it"):
        places.find(config(), "one more")
    assert places.find(config(), "5") == known[5]


def test_what_is_described_has_its_place_and_its_role() -> None:
    places, records = Places(), RecordWriter()
    versions = [make_version("btc", label, place=place) for place, label in enumerate(("7", "8", "9"))]
    for version in versions:
        places.take(places.find(config(version=version.label), "red"), version)
    catalogue = catalogue_of(*versions)  # of which 9 is live, 8 was before, and 7 nothing leads to
    places.describe(catalogue, records)
    reader = RecordReader(records.fd)
    described = reader.description().versions
    assert [(version.version, version.role) for version in described] == [
        ("7", "retired"),
        ("8", "loaded"),
        ("9", "live"),
    ]
    assert described[2] == msgspec.structs.replace(versions[2].description, role="live")
    records.close()
