"""The catalogue against a simple model of it, through any sequence of changes."""

from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.versions import catalogue_of, make_version

from tickpath.server.catalogue import KEYS, Canary, Catalogue, CatalogueError, key_of, signature
from tickpath.server.version import Version
from tickpath.wire import Code, Infer, ModelInfo

NAMES: Final = ("btc", "eth")
# A version's label tells its tensors: content has one shape for ever.
LABELS: Final = ("a1", "a2", "a3", "b1")
# Versions of each shape: a hundred thousand are made, and to the catalogue they are names and tensors.
SHAPES: Final = {"a": make_version("shape", floats=1), "b": make_version("shape", floats=2)}
SHARES: Final = (0.0, 0.25, 1.0)
# Below a share of 0.25, and above.
KEYS_ASKED: Final = (0, KEYS // 2)


@dataclass(frozen=True)
class Beside:
    """A shadow that computes nothing."""

    version: Version

    def offer(self, infer: Infer, frame: bytes) -> None:
        raise AssertionError("no request is answered here")


@dataclass
class Expected:
    """What one name should have."""

    live: Version | None = None
    previous: Version | None = None
    canary: Canary | None = None
    shadow: Version | None = None
    kept: list[Version] = field(default_factory=list)
    listed: list[Version] = field(default_factory=list)

    def used(self) -> list[Version]:
        canary = self.canary.version if self.canary else None
        roles = [self.live, self.previous, canary, self.shadow]
        return [version for version in roles if version] + self.kept + self.listed

    def make_live(self, version: Version) -> None:
        if version is self.live:
            return
        old, self.live, self.previous = self.live, version, self.live
        other_shape = old is not None and old.label[0] != version.label[0]
        if other_shape or (self.canary and self.canary.version is version):
            self.canary = None
        if other_shape or self.shadow is version:
            self.shadow = None

    def fits(self, version: Version) -> bool:
        """Whether it can be a canary or a shadow."""
        live = self.live
        return live is not None and live is not version and live.label[0] == version.label[0]


class Changes(RuleBasedStateMachine):
    """Versions come and go as a deployment has them; `promised` are the handles that were told, and of what."""

    def __init__(self) -> None:
        super().__init__()
        self.catalogue = Catalogue()
        self.expected: dict[str, Expected] = {}
        self.loaded: list[Version] = []
        self.promised: dict[int, tuple[str, str]] = {}

    def settle(self, unused: tuple[Version, ...]) -> None:
        """What a change returned is what nothing uses any more, each once."""
        used = {id(version) for expected in self.expected.values() for version in expected.used()}
        gone = [version for version in self.loaded if id(version) not in used]
        assert sorted(map(id, unused)) == sorted(map(id, gone))
        self.loaded = [version for version in self.loaded if id(version) in used]

    def find(self, name: str, label: str) -> Version | None:
        return next((each for each in self.loaded if (each.name, each.label) == (name, label)), None)

    def pick(self, index: int) -> Version:
        version = self.loaded[index % len(self.loaded)]
        assert self.catalogue.version(version.name, version.label) is version
        return version

    def load(self, name: str, label: str) -> Version:
        """As it is where it is loaded already, else a new one: a label that was retired may come back."""
        if (version := self.find(name, label)) is None:
            shape = SHAPES[label[0]]
            version = replace(shape, info=msgspec.structs.replace(shape.info, name=name, version=label))
            self.loaded.append(version)
            self.catalogue.add(version)
        return version

    @rule(name=st.sampled_from(NAMES), label=st.sampled_from(LABELS))
    def load_live(self, name: str, label: str) -> None:
        version = self.load(name, label)
        self.expected.setdefault(name, Expected()).make_live(version)
        self.settle(self.catalogue.make_live(version))

    @rule(name=st.sampled_from(NAMES), label=st.sampled_from(LABELS))
    def load_beside(self, name: str, label: str) -> None:
        version = self.load(name, label)
        kept = self.expected.setdefault(name, Expected()).kept
        if version not in kept:
            kept.append(version)
        self.catalogue.keep(version)

    @rule(name=st.sampled_from(NAMES), labels=st.sets(st.sampled_from(LABELS), max_size=2))
    def reload_beside(self, name: str, labels: set[str]) -> None:
        """A reload: the model's files ask for these beside the live one, and for no others."""
        if not labels and name not in self.expected:
            return
        listed = [self.load(name, label) for label in sorted(labels)]
        for version in listed:
            self.catalogue.list_beside(version)
        self.expected.setdefault(name, Expected()).listed = listed
        self.settle(self.catalogue.list_only(name, labels))

    @rule(name=st.sampled_from(NAMES))
    def rollback(self, name: str) -> None:
        expected = self.expected.get(name)
        if expected is None or expected.previous is None:
            with pytest.raises(CatalogueError, match=name):
                self.catalogue.rollback(name)
            return
        expected.make_live(expected.previous)
        self.settle(self.catalogue.rollback(name))

    @precondition(lambda self: self.loaded)
    @rule(index=st.integers(0, 7), share=st.sampled_from(SHARES))
    def canary(self, index: int, share: float) -> None:
        version = self.pick(index)
        name, canary = version.name, Canary(version, share)
        if self.expected[name].fits(canary.version):
            self.expected[name].canary = canary
            self.settle(self.catalogue.set_canary(name, canary))
        else:
            with pytest.raises(CatalogueError, match="can't be a canary"):
                self.catalogue.set_canary(name, canary)

    @precondition(lambda self: self.loaded)
    @rule(index=st.integers(0, 7))
    def shadow(self, index: int) -> None:
        shadow = Beside(self.pick(index))
        name = shadow.version.name
        if self.expected[name].fits(shadow.version):
            self.expected[name].shadow = shadow.version
            self.settle(self.catalogue.set_shadow(name, shadow))
        else:
            with pytest.raises(CatalogueError, match="can't be a shadow"):
                self.catalogue.set_shadow(name, shadow)

    @rule(name=st.sampled_from(NAMES), canary=st.booleans())
    def end(self, name: str, canary: bool) -> None:
        if (expected := self.expected.get(name)) is None:
            return
        if canary:
            expected.canary = None
            self.settle(self.catalogue.set_canary(name, None))
        else:
            expected.shadow = None
            self.settle(self.catalogue.set_shadow(name, None))

    @precondition(lambda self: self.loaded)
    @rule(index=st.integers(0, 7))
    def unload_version(self, index: int) -> None:
        version = self.pick(index)
        expected = self.expected[version.name]
        if version in (expected.live, expected.shadow, expected.canary and expected.canary.version):
            with pytest.raises(CatalogueError, match=r"--off` first|make another live first"):
                self.catalogue.unload_version(version)
            return
        for asked in (expected.kept, expected.listed):
            asked[:] = [each for each in asked if each is not version]
        if expected.previous is version:
            expected.previous = None
        self.settle(self.catalogue.unload_version(version))

    @rule(name=st.sampled_from(NAMES))
    def unload_model(self, name: str) -> None:
        if self.expected.pop(name, None) is None:
            with pytest.raises(CatalogueError, match=name):
                self.catalogue.unload_model(name)
        else:
            self.settle(self.catalogue.unload_model(name))

    @rule()
    def ask(self) -> None:
        """A client learns what there is, and by which handles."""
        infos, pinned = self.catalogue.infos(), self.catalogue.version_infos()
        live = {name: each.live.label for name, each in self.expected.items() if each.live}
        assert {info.name: info.version for info in infos} == live
        assert sorted((info.name, info.version) for info in pinned) == sorted((v.name, v.label) for v in self.loaded)
        for info in infos:
            self.promise(info, info.version[0])
        for info in pinned:
            self.promise(info, info.version)

    def promise(self, info: ModelInfo, what: str) -> None:
        """`what`: the shape that a handle of a live version has, the label of a pinned one."""
        assert self.promised.setdefault(info.handle, (info.name, what)) == (info.name, what)
        assert list(self.promised.values()).count((info.name, what)) == 1

    @invariant()
    def what_is_loaded_is_what_is_used(self) -> None:
        assert sorted(map(id, self.catalogue.versions)) == sorted(map(id, self.loaded))
        for version in self.loaded:
            live = self.expected[version.name].live is version
            assert self.catalogue.role(version) == ("live" if live else "loaded")

    @invariant()
    def roles_are_as_expected(self) -> None:
        assert set(self.catalogue.names) == set(self.expected)
        for name, expected in self.expected.items():
            model = self.catalogue.model(name)
            assert (model.live, model.previous, model.canary) == (expected.live, expected.previous, expected.canary)
            assert (model.shadow and model.shadow.version) is expected.shadow

    @invariant()
    def a_handle_leads_where_it_was_promised_to_or_says_why_not(self) -> None:
        for handle, (name, what) in self.promised.items():
            route = self.catalogue.routes[handle]
            for key in KEYS_ASKED:
                assert route.pick(key) is self.version_for(name, what, key)
            if route.live is None:
                assert route.gone.code is Code.UNKNOWN_MODEL
                assert f"model {name!r}" in route.gone.message
                assert (route.canary, route.shadow) == (None, None)
            elif len(what) == 1:
                assert route.shadow is self.catalogue.model(name).shadow

    def version_for(self, name: str, what: str, key: int) -> Version | None:
        if len(what) > 1:
            return self.find(name, what)
        expected = self.expected.get(name)
        if expected is None or expected.live is None or expected.live.label[0] != what:
            return None
        return expected.canary.version if expected.canary and expected.canary.takes(key) else expected.live


Changes.TestCase.settings = settings(max_examples=400, stateful_step_count=50, deadline=None)
TestChanges = Changes.TestCase


def test_a_share_of_the_clients_is_as_large_as_asked_and_grows_by_those_that_come_new() -> None:
    version = make_version("btc", "2")
    keys = [key_of(f"desk-{number}") for number in range(10_000)]
    takers = [{key for key in keys if Canary(version, share).takes(key)} for share in (0, 0.05, 0.5, 1)]
    assert [len(taker) for taker in takers] == pytest.approx([0, 500, 5_000, 10_000], abs=200)
    assert takers[0] < takers[1] < takers[2] < takers[3]


def test_a_key_is_the_same_everywhere_and_always() -> None:
    """Two servers, and one that was restarted, agree on who is in the share."""
    assert key_of("desk-7") == 0xF56187F9D0492842


def test_a_version_that_was_unloaded_meanwhile_can_be_nothing() -> None:
    live, other = make_version("btc", "1"), make_version("btc", "2")
    catalogue = catalogue_of(live)
    catalogue.add(other, keep=True)
    catalogue.unload_version(other)
    catalogue.add(make_version("btc", "2"), keep=True)
    with pytest.raises(CatalogueError, match=r"version '3' of model 'btc' is not loaded; there are: 1, 2"):
        catalogue.version("btc", "3")
    with pytest.raises(CatalogueError, match="unloaded meanwhile"):
        catalogue.set_shadow("btc", Beside(other))


def test_a_handle_that_leads_nowhere_says_what_has_changed() -> None:
    catalogue = catalogue_of(make_version("btc", "1", floats=1))
    renamed = make_version("btc", "2", floats=2)
    catalogue.add(renamed)
    catalogue.make_live(renamed)
    text = catalogue.routes[0].gone.message
    assert "took x float32[N,1] -> y float32[N,1]" in text
    assert "version 2 takes x float32[N,2] -> y float32[N,2]" in text
    catalogue.rollback("btc")
    assert catalogue.routes[0].live is not None
    assert signature(catalogue.routes[0].live) != signature(renamed)
