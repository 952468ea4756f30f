"""Versions of a model on a real server that goes on serving: what handles lead to, and what becomes of requests in
flight while another version takes over. Each test has a model of its own, which comes while the server runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from tests.inputs import inputs_root
from tests.operators import Operator, add_whole_version, replace_model
from tests.peer import Peer
from tests.processes import children
from tests.reference import reference_session
from tests.repositories import add_version, renamed, scale, slow_scale
from tests.serving import RunningServer, serve
from tests.unit.client.callers import CALLERS, MakeCaller
from tests.waiting import wait_until

from tickpath.client import BadShapeError, UnknownModelError
from tickpath.wire import Code, Failure, Infer, ModelInfo, ModelList, Models, Result

X: Final = np.array([[1.5, -2.0, 0.25]], np.float32)
# 15 ms a request, so that all in flight take longer than two loads.
SLOW_STEPS: Final = 80_000
SESSIONS: Final = 4
IN_FLIGHT: Final = 16


@dataclass(frozen=True)
class Site:
    """A server, its repository, and who runs it."""

    server: RunningServer
    models: Path
    operator: Operator

    def reload(self, name: str, version: str, content: onnx.ModelProto | Path) -> str:
        """A new version, whole, and a reload of its model."""
        add_whole_version(self.models, name, version, content)
        return self.operator.done("reload", model=name)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("versions")
    models, admin = folder / "models", folder / "admin"
    add_version(models, "first", "1", scale(1))
    with serve(folder, [], repository=str(models), admin=str(admin)) as server, Operator(admin) as operator:
        yield Site(server, models, operator)


class Desk(Peer):
    """A client that knows handles and nothing else."""

    def listed(self, versions: bool = False) -> dict[str, ModelInfo]:
        """What is told, by `name`, or of versions by `name@version`."""
        self.send(Models(9, versions))
        told = self.receive()
        assert isinstance(told, ModelList)
        return {f"{info.name}@{info.version}" if versions else info.name: info for info in told.models}

    def ask(self, handle: int, inputs: npt.NDArray[np.float32] = X, request_id: int = 1) -> Result | Failure:
        self.send(Infer(request_id, handle, len(inputs), [memoryview(inputs.tobytes())]))
        answer = self.receive()
        assert isinstance(answer, Result | Failure)
        return answer

    def answered_by(self, handle: int, factor: float | None = None) -> str:
        """The version that answers; with `factor`, rightly."""
        answer = self.ask(handle)
        assert isinstance(answer, Result), answer
        if factor is not None:
            assert bytes(answer.outputs[0]) == (X * np.float32(factor)).tobytes()
        return answer.version

    def why_not(self, handle: int) -> str:
        answer = self.ask(handle)
        assert isinstance(answer, Failure), answer
        assert answer.code is Code.UNKNOWN_MODEL
        return answer.message


@pytest.fixture
def desk(site: Site) -> Iterator[Desk]:
    with Desk(site.server.connect()) as desk:
        desk.greet()
        yield desk


def test_a_handle_follows_its_model_until_other_tensors_come_and_from_a_rollback_on_again(
    site: Site, desk: Desk
) -> None:
    site.reload("btc", "1", scale(1))
    old = desk.listed()["btc"].handle
    assert desk.answered_by(old, 1) == "1"
    site.reload("btc", "2", scale(2))
    assert desk.answered_by(old, 2) == "2"
    site.reload("btc", "3", renamed(3))
    why = desk.why_not(old)
    assert "took x float32[N,3] -> y float32[N,3]" in why
    assert "version 3 takes renamed float32[N,3] -> y float32[N,3]: ask for Models again" in why
    new = desk.listed()["btc"].handle
    assert new != old
    assert desk.answered_by(new, 3) == "3"
    told = site.operator.done("rollback", model="btc")
    assert told.startswith(
        "model btc: version 2 is live again; it takes x float32[N,3] -> y float32[N,3], no more renamed"
    )
    assert desk.answered_by(old, 2) == "2"
    assert "took renamed" in desk.why_not(new)
    site.operator.done("rollback", model="btc")
    assert desk.answered_by(new, 3) == "3"


def test_a_pinned_version_answers_while_it_is_loaded_and_when_it_is_loaded_again(site: Site, desk: Desk) -> None:
    site.reload("pins", "1", scale(1))
    first = desk.listed(versions=True)["pins@1"].handle
    site.reload("pins", "2", scale(2))
    assert desk.answered_by(first, 1) == "1"
    assert (desk.listed()["pins"].handle, desk.listed(versions=True)["pins@1"].handle) != (first, first)
    site.reload("pins", "3", scale(3))
    assert "version 1 of model 'pins' was unloaded" in desk.why_not(first)
    site.operator.done("load", model="pins", version="1")
    assert desk.answered_by(first, 1) == "1"
    assert sorted(site.operator.model("pins")["loaded"]) == ["1", "2", "3"]
    site.operator.done("unload", model="pins", version="1")
    assert "was unloaded" in desk.why_not(first)
    assert "version '3' of model 'pins' is live" in site.operator.refused("unload", model="pins", version="3")


def test_other_content_under_one_name_is_told_apart_and_the_same_is_not_loaded_twice(site: Site, desk: Desk) -> None:
    site.reload("same", "7", scale(1))
    handle = desk.listed()["same"].handle
    assert "nothing has changed" in site.operator.done("reload", model="same")
    (site.models / "same" / "7" / "model.onnx").touch()
    assert "nothing has changed" in site.operator.done("reload", model="same")
    replace_model(site.models, "same", "7", scale(2))
    assert "version 7-r2 is live, after 7" in site.operator.done("reload", model="same")
    assert desk.answered_by(handle, 2) == "7-r2"
    replace_model(site.models, "same", "7", scale(1))
    assert "version 7 is live, after 7-r2; it was loaded already" in site.operator.done("reload", model="same")
    assert desk.answered_by(handle, 1) == "7"


def test_what_a_models_files_ask_for_beside_it_goes_when_they_do_not_any_more(site: Site) -> None:
    for version in ("1", "2", "3"):
        add_whole_version(site.models, "beside", version, scale(float(version)))
    settings = site.models / "beside" / "model.toml"
    settings.write_text('versions = ["1", "2", "3"]')
    site.operator.done("reload", model="beside")
    site.operator.done("load", model="beside", version="2")
    replace_model(site.models, "beside", "1", scale(10))
    site.operator.done("reload", model="beside")
    assert sorted(site.operator.model("beside")["loaded"]) == ["1-r2", "2", "3"]
    settings.write_text('versions = ["3"]')
    # The settings are other ones only where they are of the version itself: 3 is as it was.
    assert "nothing has changed" in site.operator.done("reload", model="beside")
    assert sorted(site.operator.model("beside")["loaded"]) == ["2", "3"]


def test_an_unloaded_model_says_so_until_it_is_reloaded(site: Site, desk: Desk) -> None:
    site.reload("gone", "1", scale(1))
    handle, pinned = desk.listed()["gone"].handle, desk.listed(versions=True)["gone@1"].handle
    site.operator.done("unload", model="gone")
    for each in (handle, pinned):
        assert "model 'gone' was unloaded" in desk.why_not(each)
    assert "gone" not in desk.listed()
    assert "no model 'gone' is served; there are: " in site.operator.refused("rollback", model="gone")
    assert "version 1 is live" in site.operator.done("reload", model="gone")
    assert [desk.answered_by(each, 1) for each in (handle, pinned)] == ["1", "1"]


def test_a_larger_model_is_taken_on_sessions_that_are_open(site: Site, desk: Desk) -> None:
    """The largest frame was told in Welcome; it may grow."""
    wide = scale(2)
    for tensor in (*wide.graph.input, *wide.graph.output):
        tensor.type.tensor_type.shape.dim[1].dim_value = 100_000
    site.reload("wide", "1", wide)
    inputs = np.random.default_rng(0).standard_normal((2, 100_000), np.float32)
    answer = desk.ask(desk.listed()["wide"].handle, inputs)
    assert isinstance(answer, Result), answer
    assert bytes(answer.outputs[0]) == (inputs * np.float32(2)).tobytes()


@pytest.mark.parametrize("make_caller", CALLERS.values(), ids=CALLERS)
def test_clients_find_what_took_a_models_place(
    make_caller: MakeCaller, site: Site, request: pytest.FixtureRequest
) -> None:
    """The request that meets the change is refused with the reason; the next one asks anew."""
    name = f"client-{request.node.callspec.id}"
    site.reload(name, "1", scale(1))
    with make_caller(site.server.address) as client:
        assert client.infer(name, [X]).version == "1"
        assert client.infer(f"{name}@1", [X]).version == "1"
        site.reload(name, "2", renamed(2))
        with pytest.raises(UnknownModelError, match="version 2 takes renamed float32"):
            client.infer(name, [X])
        assert client.infer(name, {"renamed": X}).version == "2"
        with pytest.raises(BadShapeError, match="renamed"):
            client.infer(name, {"x": X})
        assert client.infer(f"{name}@1", {"x": X}).version == "1"
        site.operator.done("rollback", model=name)
        outcomes = client.infer_many(name, [[X]] * 3)
        assert isinstance(outcomes[0], UnknownModelError)
        assert client.infer(name, {"x": X}).version == "1"
        site.operator.done("unload", model=name)
        with pytest.raises(UnknownModelError, match="was unloaded"):
            client.infer(name, [X])
        with pytest.raises(UnknownModelError, match=f"no model '{name}'"):
            client.infer(name, [X])


def threads(server: RunningServer) -> int:
    return len(list(Path(f"/proc/{server.ready.pid}/task").iterdir()))


class Pipeline:
    """A client of a slow model, which always has requests in flight. `answers`: (id, version) in the order in which
    they came."""

    def __init__(self, site: Site, name: str) -> None:
        self.answers: list[tuple[int, str]] = []
        self.desk = Desk(site.server.connect())
        self.desk.greet()
        self._handle = self.desk.listed()[name].handle
        self._last_id = 0
        for _ in range(IN_FLIGHT):
            self.send()

    @property
    def versions(self) -> list[str]:
        return [version for _, version in self.answers]

    def send(self) -> None:
        self._last_id += 1
        self.desk.send(Infer(self._last_id, self._handle, 1, [memoryview(X.tobytes())]))

    def receive(self) -> None:
        answer = self.desk.receive()
        assert isinstance(answer, Result), answer
        assert bytes(answer.outputs[0]) == (X * np.float32(int(answer.version))).tobytes()
        self.answers.append((answer.id, answer.version))

    def end(self) -> None:
        while len(self.answers) < self._last_id:
            self.receive()
        self.desk.close()


def add_slow(site: Site, name: str) -> list[Pipeline]:
    """A slow model of one thread, and sessions that fill its queue."""
    (site.models / name).mkdir()
    (site.models / name / "model.toml").write_text('buckets = [1]\nqueue_max = 128\nexecutor = "thread"\n')
    site.reload(name, "1", slow_scale(1, SLOW_STEPS))
    return [Pipeline(site, name) for _ in range(SESSIONS)]


def test_what_is_in_flight_ends_on_the_version_it_began_on(site: Site) -> None:
    """A quick version takes over while a full queue waits for a slow one."""
    pipelines = add_slow(site, "slow")
    add_whole_version(site.models, "slow", "2", slow_scale(2, 100))
    with Operator(site.operator.path) as other:
        other.begin(do="reload", model="slow")
        while not all("2" in pipeline.versions for pipeline in pipelines):
            for pipeline in pipelines:
                pipeline.receive()
                pipeline.send()
        assert other.answer()["done"]
    for pipeline in pipelines:
        pipeline.end()
        in_order = [version for _, version in sorted(pipeline.answers)]
        assert in_order == sorted(in_order)
        assert "1" in pipeline.versions[pipeline.versions.index("2") :]


def test_what_is_in_flight_is_answered_by_a_model_that_is_unloaded(site: Site) -> None:
    """And then it is gone, with its thread."""
    before = threads(site.server)
    pipelines = add_slow(site, "leaving")
    site.operator.done("unload", model="leaving")
    for pipeline in pipelines:
        pipeline.end()
        assert pipeline.answers == [(1 + number, "1") for number in range(IN_FLIGHT)]
    wait_until(lambda: threads(site.server) == before, "its thread has ended")


def test_a_rollback_waits_for_no_load(site: Site) -> None:
    site.reload("back", "1", scale(1))
    site.reload("back", "2", scale(2))
    add_whole_version(site.models, "long", "1", slow_scale(1, SLOW_STEPS))
    (site.models / "long" / "model.toml").write_text("buckets = [1]\n")
    with Operator(site.operator.path) as other, Desk(site.server.connect()) as desk:
        desk.greet()
        handle = desk.listed()["back"].handle
        other.begin(do="reload", model="long")
        wait_until(lambda: site.operator.ask(do="status")["changing"], "the load has begun")
        assert "version 1 is live again" in site.operator.done("rollback", model="back")
        assert desk.answered_by(handle, 1) == "1"
        assert "long" not in desk.listed()
        assert other.answer()["done"]
        assert "long" in desk.listed()


def test_what_changes_while_it_is_loaded_is_refused(site: Site) -> None:
    """Its answers would go by the name of what it was when the load began."""
    folder = add_whole_version(site.models, "moving", "1", slow_scale(1, SLOW_STEPS))
    (site.models / "moving" / "model.toml").write_text("buckets = [1]\n")
    with Operator(site.operator.path) as other:
        other.begin(do="reload", model="moving")
        wait_until(lambda: any(map(children, children(site.server.ready.pid))), "it is being proven")
        (folder / "golden.npz.new").write_bytes(b"...")
        answer = other.answer()
    assert not answer["done"]
    assert "its folder changed while it was loaded: reload once it is whole" in answer["text"][0]
    assert site.operator.live("moving") is None
    (folder / "golden.npz.new").unlink()
    assert "version 1 is live" in site.operator.done("reload", model="moving")


ROOT = inputs_root()


@pytest.mark.skipif(ROOT is None, reason="no real models: set TICKPATH_INPUTS")
def test_real_versions_of_which_one_renames_its_input(site: Site, desk: Desk) -> None:
    assert ROOT is not None
    folder = ROOT / "models" / "trading_bot" / "BTCUSDT" / "basic"
    paths = [
        folder / version / "model.onnx" for version in ("2025-10-26_21h_v1", "2025-10-27_14h_v1", "2025-10-30_12h_v1")
    ]
    bars = np.random.default_rng(0).standard_normal((2, 120, 5), np.float32)

    def check(handle: int, path: Path) -> None:
        answer = desk.ask(handle, bars)
        assert isinstance(answer, Result), answer
        assert answer.version == path.parent.name
        session = reference_session(path)
        (expected,) = session.run(None, {session.get_inputs()[0].name: bars})
        assert bytes(answer.outputs[0]) == np.asarray(expected).tobytes()

    site.reload("bot", paths[0].parent.name, paths[0])
    old = desk.listed()["bot"].handle
    check(old, paths[0])
    site.reload("bot", paths[1].parent.name, paths[1])
    check(old, paths[1])
    site.reload("bot", paths[2].parent.name, paths[2])
    why = desk.why_not(old)
    assert "took keras_tensor float32[N,120,5]" in why
    assert "takes input_layer float32[N,120,5]" in why
    check(desk.listed()["bot"].handle, paths[2])
    site.operator.done("rollback", model="bot")
    check(old, paths[1])
