"""Versions come and go on the simulated device while a loop polls it: every answer is right and of the version that it
names, and what a version held is given back."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import msgspec
import numpy as np
import pytest
from tests.operators import Operator, add_whole_version
from tests.processes import WAIT_S_MAX
from tests.sim.cuda.build import ROOT
from tests.sim.cuda.calls import Floats
from tests.sim.cuda.model import ANSWERS, COLUMNS
from tests.sim.cuda.standin import weights_of
from tests.sim.cuda.test_serving import EXIT_DEVICE_LOST, stand_in_as_onnx

from tickpath.client import Client, NotReadyError, Prediction, TickpathError
from tickpath.server.ready import Ready

SETTINGS: Final = 'device_wait = "poll"\ndevice_slots = 3\nqueue_max = 4096\n'
CLIENTS: Final = tuple(f"desk-{number}" for number in range(4))
IN_FLIGHT: Final = 8
"""Of each client: more than there are slots."""
OUT_OF_MEMORY: Final = 2
LAUNCH_FAILED: Final = 719
LIVING: Final = ("device_allocations", "host_allocations", "streams", "events", "graphs", "execs", "context_retains")


def answering(version: str, inputs: Floats) -> Floats:
    """What the stand-in of this version answers."""
    w1, b1, w2, b2 = weights_of(COLUMNS, ANSWERS, seed=int(version))
    return np.asarray((inputs @ w1 + b1) @ w2 + b2, np.float32)


@dataclass
class Asking:
    """Clients that ask, each on a thread, until the block is left or the server ends. `seen`: the versions that have
    answered right, in the order in which the answers came; `wrong`: what else came."""

    address: str
    seen: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    threads: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        for name in CLIENTS:
            thread = threading.Thread(target=self._ask, args=(name,))
            thread.start()
            self.threads.callback(thread.join)
        self.threads.callback(self.stop.set)
        return self

    def __exit__(self, *_: object) -> None:
        self.threads.close()

    def wait_for(self, count: int, version: str = "") -> None:
        """Returns when so many more have been answered, by this version."""
        end_s, start = time.monotonic() + WAIT_S_MAX, len(self.seen)
        while sum(not version or seen == version for seen in self.seen[start:]) < count:
            assert time.monotonic() < end_s, self.wrong[:3]
            time.sleep(0.001)

    def versions(self) -> list[str]:
        """Who has answered, in the order of their first answers."""
        return list(dict.fromkeys(self.seen))

    def _ask(self, name: str) -> None:
        random = np.random.default_rng(CLIENTS.index(name))
        try:
            with Client(self.address, name=name) as client:
                while not self.stop.is_set():
                    self._ask_some(client, random)
        except TickpathError as error:
            self.wrong.append(f"{type(error).__name__}: {error}")

    def _ask_some(self, client: Client, random: np.random.Generator) -> None:
        """Small whole numbers: every sum is exact, in any order."""
        questions = [random.integers(-8, 9, (rows, COLUMNS)).astype(np.float32) for rows in random.integers(1, 9, 24)]
        answers = client.infer_many("m", [{"x": x} for x in questions], in_flight=IN_FLIGHT)
        for x, answer in zip(questions, answers, strict=True):
            if not isinstance(answer, Prediction):
                self.wrong.append(f"{type(answer).__name__}: {answer}")
            elif not np.array_equal(answer["y"], answering(answer.version, x)):
                self.wrong.append(f"an answer that version {answer.version} does not give")
            else:
                self.seen.append(answer.version)


@dataclass
class Site:
    """A server of a repository on the simulated device. Its versions are whole numbers."""

    process: subprocess.Popen[str]
    ready: Ready
    models: Path
    operator: Operator

    def add(self, version: int) -> None:
        add_whole_version(self.models, "m", str(version), stand_in_as_onnx(version))

    def say(self, fault: str = "") -> dict[str, int]:
        """Order a fault; what lives on the device."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{fault}\n")
        self.process.stdin.flush()
        stats = json.loads(self.process.stdout.readline())
        return {what: stats[what] for what in LIVING}

    def wait_until(self, living: dict[str, int]) -> None:
        """What is retired goes once its last request is answered."""
        end_s = time.monotonic() + WAIT_S_MAX
        while (seen := self.say()) != living:
            assert time.monotonic() < end_s, (seen, living)
            time.sleep(0.01)

    def asking(self) -> Asking:
        return Asking(self.ready.address)


@contextmanager
def serving(driver: Path, folder: Path, seed: int, exit_code: int = 0) -> Iterator[Site]:
    """In a process that ends by a violation where the host touches pinned memory in use, or where anything is left."""
    models, admin, log = folder / "models", folder / "admin", folder / "log"
    add_whole_version(models, "m", "1", stand_in_as_onnx(1))
    (models / "m" / "model.toml").write_text(SETTINGS)
    config = folder / "tickpath.toml"
    config.write_text(f'repository = "{models}"\nadmin = "{admin}"\nport = 0\n')
    command = [
        sys.executable,
        "-m",
        "tests.sim.cuda.serve",
        "serve",
        "--config",
        str(config),
        "--json",
        "--no-observer",
    ]
    environment = {"LD_LIBRARY_PATH": str(driver), "PATH": "", "TICKPATH_SIM_SEED": str(seed)}
    environment |= {"TICKPATH_SIM_FENCE": "1", "TICKPATH_SIM_LEAKS": "1"}
    pipe = subprocess.PIPE
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, env=environment, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            with Operator(admin) as operator:
                yield Site(process, msgspec.json.decode(line, type=Ready), models, operator)
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(WAIT_S_MAX)
    assert process.returncode == exit_code, log.read_text()


@pytest.fixture(params=[1, 2, 3], ids="seed {}".format)
def site(request: pytest.FixtureRequest, simulated_driver: Path, tmp_path: Path) -> Iterator[Site]:
    with serving(simulated_driver, tmp_path, request.param) as site:
        yield site


def test_reloads_under_load(site: Site) -> None:
    """Each has the version before beside it for a rollback, so two are loaded from the first on."""
    with site.asking() as asking:
        asking.wait_for(100, "1")
        for version in range(2, 7):
            site.add(version)
            assert f"version {version} is live" in site.operator.done("reload")
            asking.wait_for(50, str(version))
            if version == 2:
                two = site.say()
            site.wait_until(two)
        site.operator.done("rollback", model="m")
        asking.wait_for(50, "5")
    assert asking.wrong == []
    assert asking.versions() == ["1", "2", "3", "4", "5", "6"]
    assert asking.seen[-1] == "5"


def test_a_refused_reload_changes_nothing_and_leaves_nothing(site: Site) -> None:
    """The driver refuses at the first, at some and at the last of a load's slots."""
    with site.asking() as asking:
        asking.wait_for(50, "1")
        one = site.say()
        site.add(2)
        for call in ("cuStreamCreateWithPriority 1", "cuMemHostRegister 1", "cuMemAlloc 16", "cuEventCreate 12"):
            site.say(f"{call} {OUT_OF_MEMORY}")
            assert "CUDA_ERROR_OUT_OF_MEMORY" in site.operator.refused("reload", model="m")
            assert site.say() == one
        asking.wait_for(50, "1")
        assert asking.versions() == ["1"]
        site.operator.done("reload")
        asking.wait_for(50, "2")
    assert asking.wrong == []


def test_a_device_lost_in_a_reload_ends_the_server(simulated_driver: Path, tmp_path: Path) -> None:
    """What was answered before was right, all else is refused, and nothing is left."""
    with serving(simulated_driver, tmp_path, 1, EXIT_DEVICE_LOST) as site:
        with site.asking() as asking:
            asking.wait_for(50, "1")
            site.add(2)
            site.say(f"cuMemHostRegister 5 {LAUNCH_FAILED}")
            assert "the device is lost, so the server ends" in site.operator.refused("reload", model="m")
            site.process.wait(WAIT_S_MAX)
        assert asking.versions() == ["1"]
        allowed = (NotReadyError.__name__, "ConnectionLostError", "ConnectError")
        assert [why for why in asking.wrong if not why.startswith(allowed)] == []


def test_a_canary_and_a_shadow_beside_the_live_one(site: Site) -> None:
    """A shadow has slots of its own, which go when it ends, or when not all of them can be had."""
    site.add(2)
    site.operator.done("load", model="m", version="2")
    two = site.say()
    with site.asking() as asking:
        for call in ("cuMemHostRegister 3", "cuMemHostRegister 11"):
            site.say(f"{call} {OUT_OF_MEMORY}")
            site.operator.refused("shadow", model="m", version="2")
            assert site.say() == two
        for _ in range(3):
            site.operator.done("shadow", model="m", version="2")
            assert site.say() != two
            site.operator.done("canary", model="m", version="2", share=0.5)
            asking.wait_for(50, "2")
            site.operator.done("canary", model="m")
            site.operator.done("shadow", model="m")
            asking.wait_for(50, "1")
            site.wait_until(two)
    assert asking.wrong == []
    assert set(asking.versions()) == {"1", "2"}


def test_what_is_unloaded_answers_what_it_has(site: Site) -> None:
    """A canary is called off and unloaded with requests waiting and on the device: they end where they began."""
    one = site.say()
    site.add(2)
    with site.asking() as asking:
        for _ in range(3):
            site.operator.done("load", model="m", version="2")
            site.operator.done("canary", model="m", version="2", share=0.5)
            asking.wait_for(50, "2")
            site.operator.begin(do="canary", model="m")
            site.operator.begin(do="unload", model="m", version="2")
            assert [site.operator.answer()["done"] for _ in range(2)] == [True, True]
            site.wait_until(one)
        asking.wait_for(50, "1")
    assert asking.wrong == []
