"""What stands between us and TensorRT, as far as it needs no TensorRT."""

import pytest
from tests.stand_in_tensorrt import stand_in

from tickpath.engines import ModelRefusedError
from tickpath.engines.compile.options import check_targets
from tickpath.engines.tensorrt import MESSAGES_MAX, MODULES, KeptLog, WatchedMonitor, find_tensorrt, one_line


class Watcher:
    """Ends the build at a step, or raises there."""

    def __init__(self, ends_at: int | None = None, raises: BaseException | None = None) -> None:
        self.told: list[tuple[object, ...]] = []
        self._ends_at, self._raises = ends_at, raises

    def started(self, phase: str, parent: str | None, steps: int) -> None:
        self.told.append((phase, parent, steps))

    def stepped(self, phase: str, step: int) -> bool:
        if self._raises is not None:
            raise self._raises
        return step != self._ends_at

    def finished(self, phase: str) -> None:
        self.told.append((phase,))


def test_a_watcher_is_told_and_asked() -> None:
    watcher = Watcher(ends_at=2)
    monitor = WatchedMonitor(watcher)
    monitor.phase_start("Building", None, 3)
    assert [monitor.step_complete("Building", step) for step in range(3)] == [True, True, False]
    monitor.phase_finish("Building")
    assert watcher.told == [("Building", None, 3), ("Building",)]
    assert monitor.stopped


def test_what_a_watcher_raises_is_kept_and_ends_the_build() -> None:
    """An exception that goes up through TensorRT would end the process."""
    monitor = WatchedMonitor(Watcher(raises=KeyboardInterrupt()))
    assert not monitor.step_complete("Building", 0)
    assert isinstance(monitor.error, KeyboardInterrupt)


def test_the_log_keeps_the_last_of_what_matters() -> None:
    log = KeptLog()
    for number in range(MESSAGES_MAX + 5):
        log.log(1, f"error {number}")
        log.log(4, "for nobody")
    taken = log.take()
    assert (len(taken), taken[-1]) == (MESSAGES_MAX, (1, f"error {MESSAGES_MAX + 4}"))
    assert log.take() == []


def test_errors_are_said_once_and_warnings_are_not_errors() -> None:
    tensorrt = stand_in()
    for severity, text in [(2, "a warning"), (1, "no memory"), (1, "no memory"), (0, "a bug")]:
        tensorrt.logger.log(severity, text)
    assert tensorrt.said() == "no memory; a bug"
    assert tensorrt.said() == "it does not say why"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[graphScope.cpp::analyze::471] Error Code 2: bad\nthing", "Error Code 2: bad thing"),
        ("ModelImporter.cpp:1071: Make sure", "Make sure"),
        ("refused In validate at /_src/api/network.cpp:40", "refused"),
        ("Error (In run at /_src/cuda.cpp:25 (cudaError 35: no driver))", "Error ( (cudaError 35: no driver))"),
    ],
)
def test_messages_lose_their_source_positions(text: str, line: str) -> None:
    assert one_line(text) == line


def test_features_are_asked_for() -> None:
    rtx, standard = stand_in(rtx=True), stand_in(rtx=False)
    assert (rtx.targets, rtx.keeps_timing_cache) == (("sm89", "sm120"), False)
    assert (standard.targets, standard.keeps_timing_cache) == ((), True)
    check_targets(("sm89",), rtx.targets, rtx.runtime)
    with pytest.raises(ModelRefusedError, match="can't build for sm90: it builds for sm89, sm120"):
        check_targets(("sm90",), rtx.targets, rtx.runtime)
    with pytest.raises(ModelRefusedError, match="builds for the GPU at hand only"):
        check_targets(("sm90",), standard.targets, standard.runtime)


@pytest.mark.parametrize("name", MODULES)
def test_a_package_that_is_not_there_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, MODULES[name], None)
    find_tensorrt.cache_clear()
    with pytest.raises(ModelRefusedError, match=rf"{name} can't be used here .*pip install 'tickpath\[{name}\]'"):
        find_tensorrt(name)
    find_tensorrt.cache_clear()
