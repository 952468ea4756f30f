"""GPUs through NVML: the real library on a machine without a driver, and what a driver may do, played."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml
import pytest
from prometheus_client.core import Metric

from tickpath.observe.gpu import GPUS_MAX, REASONS, GpuCollector, Nvml, installed

EVERY = {
    "tickpath_gpus",
    "tickpath_gpu",
    "tickpath_gpu_sm_clock_hertz",
    "tickpath_gpu_memory_clock_hertz",
    "tickpath_gpu_clocks_limited",
    "tickpath_gpu_memory_used_bytes",
    "tickpath_gpu_memory_total_bytes",
    "tickpath_gpu_ecc_errors",
}


def played(**functions: Any) -> ModuleType:
    """The library's names and errors, on a driver that answers as `functions` say; else for two GPUs in order."""
    module = ModuleType("pynvml")
    module.__dict__.update({name: value for name, value in vars(pynvml).items() if name.startswith("NVML")})
    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: f"GPU {handle}",
        "nvmlDeviceGetUUID": lambda handle: f"uuid-{handle}",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=100 + handle, total=1000),
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1980 if kind == pynvml.NVML_CLOCK_SM else 2619,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: REASONS["power_cap"] if handle else 0,
        "nvmlDeviceGetTotalEccErrors": lambda handle, kind, counter: 7 * kind,
    }
    # What the real library has not, it can't be asked for either.
    assert all(hasattr(pynvml, name) for name in answers)
    module.__dict__.update(answers | functions)
    return module


def fails(code: int) -> Any:
    def ask(*_arguments: object) -> None:
        raise pynvml.NVMLError(code)

    return ask


def collected(nvml: Nvml) -> dict[str, Metric]:
    return {family.name: family for family in GpuCollector(nvml).collect()}


def samples(metric: Metric) -> dict[tuple[str, ...], float]:
    return {tuple(sample.labels.values()): sample.value for sample in metric.samples}


@pytest.mark.parametrize("library", [None, installed()], ids=["no library", "no driver"])
def test_without_a_driver_there_are_no_gpus_and_that_is_no_error(library: ModuleType | None) -> None:
    nvml = Nvml(library)
    for _ in range(2):
        families = collected(nvml)
        assert families.keys() == EVERY
        assert samples(families["tickpath_gpus"]) == {(): 0}


def test_what_a_driver_tells_is_in_base_units() -> None:
    families = collected(Nvml(played()))
    assert families.keys() == EVERY
    assert samples(families["tickpath_gpus"]) == {(): 2}
    assert samples(families["tickpath_gpu"]) == {("0", "GPU 0", "uuid-0"): 1, ("1", "GPU 1", "uuid-1"): 1}
    assert samples(families["tickpath_gpu_sm_clock_hertz"]) == {("0",): 1.98e9, ("1",): 1.98e9}
    assert samples(families["tickpath_gpu_memory_clock_hertz"])[("0",)] == 2.619e9
    assert samples(families["tickpath_gpu_memory_used_bytes"]) == {("0",): 100, ("1",): 101}
    assert samples(families["tickpath_gpu_ecc_errors"])[("0", "uncorrected")] == 7
    limited = samples(families["tickpath_gpu_clocks_limited"])
    assert {series for series, value in limited.items() if value} == {("1", "power_cap")}
    assert len(limited) == 2 * len(REASONS)


def test_reasons_are_the_librarys_bits() -> None:
    bits = {value for name, value in vars(pynvml).items() if name.startswith("nvmlClocksEventReason")}
    assert set(REASONS.values()) == bits - {0, pynvml.nvmlClocksEventReasonAll}


def test_what_a_gpu_does_not_tell_is_left_out() -> None:
    nvml = Nvml(played(nvmlDeviceGetTotalEccErrors=fails(pynvml.NVML_ERROR_NOT_SUPPORTED)))
    families = collected(nvml)
    assert samples(families["tickpath_gpu_ecc_errors"]) == {}
    assert samples(families["tickpath_gpus"]) == {(): 2}


def test_a_gpu_that_is_lost_takes_its_series_with_it_and_no_others() -> None:
    lost = fails(pynvml.NVML_ERROR_GPU_IS_LOST)
    nvml = Nvml(played(nvmlDeviceGetHandleByIndex=lambda index: lost() if index == 0 else index))
    families = collected(nvml)
    assert samples(families["tickpath_gpus"]) == {(): 1}
    assert set(samples(families["tickpath_gpu_memory_used_bytes"])) == {("1",)}


def test_a_driver_that_goes_away_and_comes_back_is_found_again() -> None:
    begun: list[str] = []
    library: Any = played(nvmlInit=lambda: begun.append("init"), nvmlShutdown=lambda: begun.append("end"))
    nvml = Nvml(library)
    assert len(nvml.gpus()) == len(nvml.gpus()) == 2
    library.nvmlDeviceGetCount = fails(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    assert nvml.gpus() == []
    library.nvmlDeviceGetCount = lambda: 1
    assert len(nvml.gpus()) == 1
    assert begun == ["init", "end", "init"]


def test_a_driver_that_tells_of_too_many_is_asked_of_some() -> None:
    assert len(Nvml(played(nvmlDeviceGetCount=lambda: 10**6)).gpus()) == GPUS_MAX
