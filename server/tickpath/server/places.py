"""Where each version stands in the records, for ever, and what it is called.

A version's label is its folder's name. What is loaded under that name later with other content is told apart: `7`, then
`7-r2`, `7-r3`: an answer, a counter and a handle never mean two things.
"""

import os
from dataclasses import dataclass
from itertools import chain, count

import msgspec

from tickpath.observe.records import VERSIONS_MAX, CoreDescription, RecordWriter, VersionDescription
from tickpath.server.catalogue import Catalogue
from tickpath.server.config import NAME_CHARS_MAX, ModelConfig
from tickpath.server.version import Version


class PlacesFullError(Exception):
    """No more versions can be told apart. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """A version's `index` in the records, the `label` that is told of it, and the `key` of what it is."""

    index: int
    label: str
    key: tuple[str, str, str]

    @property
    def digest(self) -> str:
        """Of the content it is for."""
        return self.key[2]


class Places:
    """Hands out places: the same one to what has the same name, version and content."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str, str], Place] = {}
        self._descriptions: list[VersionDescription] = []

    def find(self, config: ModelConfig, digest: str) -> Place:
        """The place of this content under this name and version: its own, or the next free one, which is its own only
        once it is taken. Raises PlacesFullError."""
        key = (config.served_name, config.version, digest)
        if (place := self._taken.get(key)) is not None:
            return place
        index = len(self._descriptions)
        if index >= VERSIONS_MAX:
            raise PlacesFullError(
                f"{VERSIONS_MAX} versions were loaded since this server started, the most that its counters can tell "
                "apart: restart it"
            )
        return Place(index, self._free_label(config.served_name, config.version), key)

    def _free_label(self, name: str, version: str) -> str:
        """The version's own, or its first revision that nothing of this name was ever called: a folder may have such a
        name too. A label is a name, so a long version is cut for it."""
        taken = {place.label for place in self._taken.values() if place.key[0] == name}
        suffixes = (f"-r{number}" for number in count(2))
        revisions = (version[: NAME_CHARS_MAX - len(suffix)] + suffix for suffix in suffixes)
        return next(label for label in chain((version,), revisions) if label not in taken)

    def take(self, place: Place, version: Version) -> None:
        """This version stands here from now on."""
        if place.key not in self._taken:
            self._taken[place.key] = place
            self._descriptions.append(version.description)

    def describe(self, catalogue: Catalogue, records: RecordWriter) -> None:
        """Publish what is loaded, and what was."""
        roles = {version.place: catalogue.role(version) for version in catalogue.versions}
        versions = (
            msgspec.structs.replace(description, role=roles.get(index, "retired"))
            for index, description in enumerate(self._descriptions)
        )
        records.describe(CoreDescription(os.getpid(), tuple(versions)))
