"""The machine's GPUs, as the driver's management library (NVML) tells of them: what makes a replay slow and is not the
model's doing. Nothing here touches a CUDA context, and nothing is asked but while a page is rendered.

Without the library (`nvidia-ml-py`), a driver or a GPU there are none, which is no error. A driver that goes away, or
a GPU that falls off the bus, takes its series with it until it is back.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any, Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

# A machine has 16 at the most; more would be a driver's mistake, and each costs a dozen calls.
GPUS_MAX: Final = 64

# Bits of nvmlClocksEventReasons, a closed list. An idle GPU and one whose clocks somebody has set run slower too, and
# that is as it should be.
REASONS: Final = {
    "idle": 0x001,
    "clocks_setting": 0x002,
    "power_cap": 0x004,
    "hw_slowdown": 0x008,
    "sync_boost": 0x010,
    "sw_thermal": 0x020,
    "hw_thermal": 0x040,
    "hw_power_brake": 0x080,
    "display_clocks": 0x100,
}


class Gpu(NamedTuple):
    """One GPU at one moment; None: it does not tell, as some do not of ECC."""

    number: int
    name: str
    uuid: str
    sm_hz: int | None
    memory_hz: int | None
    reasons: int | None
    used_bytes: int | None
    total_bytes: int | None
    ecc_corrected: int | None
    ecc_uncorrected: int | None


class Nvml:
    """Asks NVML. `library`: the module pynvml; None: it is not installed. One thread."""

    def __init__(self, library: ModuleType | None) -> None:
        self._library = library
        self._begun = False

    def gpus(self) -> list[Gpu]:
        """Those that answer now. Never raises."""
        if self._library is None:
            return []
        try:
            if not self._begun:  # no driver yet, or no more: looked for again each time
                self._library.nvmlInit()
                self._begun = True
            count = min(self._library.nvmlDeviceGetCount(), GPUS_MAX)
        except self._library.NVMLError:
            self._end()
            return []
        return [gpu for index in range(count) if (gpu := self._gpu(index)) is not None]

    def _end(self) -> None:
        assert self._library is not None
        if self._begun:
            self._begun = False
            with suppress(self._library.NVMLError):
                self._library.nvmlShutdown()

    def _gpu(self, index: int) -> Gpu | None:
        ml = self._library
        assert ml is not None
        try:
            handle = ml.nvmlDeviceGetHandleByIndex(index)
            name, uuid = ml.nvmlDeviceGetName(handle), ml.nvmlDeviceGetUUID(handle)
        except ml.NVMLError:  # it is lost
            return None
        memory = self._told(lambda: ml.nvmlDeviceGetMemoryInfo(handle))
        sm_mhz = self._told(lambda: ml.nvmlDeviceGetClockInfo(handle, ml.NVML_CLOCK_SM))
        memory_mhz = self._told(lambda: ml.nvmlDeviceGetClockInfo(handle, ml.NVML_CLOCK_MEM))

        def ecc_errors(kind: int) -> Any:
            return self._told(lambda: ml.nvmlDeviceGetTotalEccErrors(handle, kind, ml.NVML_VOLATILE_ECC))

        return Gpu(
            number=index,
            name=str(name),
            uuid=str(uuid),
            sm_hz=None if sm_mhz is None else sm_mhz * 1_000_000,
            memory_hz=None if memory_mhz is None else memory_mhz * 1_000_000,
            reasons=self._told(lambda: ml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            used_bytes=None if memory is None else memory.used,
            total_bytes=None if memory is None else memory.total,
            ecc_corrected=ecc_errors(ml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrected=ecc_errors(ml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        )

    def _told(self, ask: Callable[[], Any]) -> Any:
        """None where this GPU does not tell."""
        assert self._library is not None
        try:
            return ask()
        except self._library.NVMLError:
            return None


class GpuCollector(Collector):
    """GPUs as metrics, each by its index at the driver."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml

    def collect(self) -> Iterator[Metric]:
        gpus = self._nvml.gpus()
        yield GaugeMetricFamily(
            "tickpath_gpus", "GPUs that the driver tells of; 0 without nvidia-ml-py.", value=len(gpus)
        )
        info = InfoMetricFamily("tickpath_gpu", "What each GPU is.")
        for gpu in gpus:
            info.add_metric((), {"gpu": str(gpu.number), "name": gpu.name, "uuid": gpu.uuid})
        yield info
        yield from _clocks(gpus)
        yield _each("tickpath_gpu_memory_used_bytes", "Device memory in use, by anybody.", gpus, lambda g: g.used_bytes)
        yield _each("tickpath_gpu_memory_total_bytes", "Device memory there is.", gpus, lambda g: g.total_bytes)
        yield _ecc(gpus)


def _clocks(gpus: list[Gpu]) -> Iterator[Metric]:
    yield _each("tickpath_gpu_sm_clock_hertz", "How fast its processors run now.", gpus, lambda g: g.sm_hz)
    yield _each("tickpath_gpu_memory_clock_hertz", "How fast its memory runs now.", gpus, lambda g: g.memory_hz)
    slowed = GaugeMetricFamily(
        "tickpath_gpu_clocks_limited",
        "1 while its clocks are below what they could be for this reason.",
        labels=("gpu", "reason"),
    )
    for gpu in gpus:
        for reason, bit in REASONS.items():
            if gpu.reasons is not None:
                slowed.add_metric((str(gpu.number), reason), int(bool(gpu.reasons & bit)))
    yield slowed


def _ecc(gpus: list[Gpu]) -> Metric:
    errors = CounterMetricFamily(
        "tickpath_gpu_ecc_errors_total",
        "Memory errors since the driver was loaded; one that was not corrected ends the process.",
        labels=("gpu", "kind"),
    )
    for gpu in gpus:
        for kind, count in (("corrected", gpu.ecc_corrected), ("uncorrected", gpu.ecc_uncorrected)):
            if count is not None:
                errors.add_metric((str(gpu.number), kind), count)
    return errors


def _each(name: str, text: str, gpus: list[Gpu], value: Callable[[Gpu], int | None]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=("gpu",))
    for gpu in gpus:
        told = value(gpu)
        if told is not None:
            family.add_metric((str(gpu.number),), told)
    return family


def installed() -> ModuleType | None:
    """The library, where it is installed."""
    try:
        import pynvml
    except ImportError:
        return None
    module: ModuleType = pynvml
    return module
