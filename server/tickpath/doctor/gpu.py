"""GPUs: driver, runtimes, and whether the driver stays awake between two processes."""

import re
from importlib import metadata
from typing import Any, Final

from tickpath.doctor.finding import Finding, ok, unseen, warn
from tickpath.doctor.host import Host

VERSION: Final = "proc/driver/nvidia/version"
NOT_TOLD: Final = "/proc does not tell of drivers"
RUNTIMES: Final = ("tensorrt", "tensorrt-rtx", "cuda-bindings", "torch")


def driver(host: Host) -> Finding:
    """The kernel's side of it."""
    check = "NVIDIA driver"
    text = host.text(VERSION)
    if text is None:
        return ok(check, "none: models run on the CPU") if host.tells("proc/driver") else unseen(check, NOT_TOLD)
    version = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", text)
    return ok(check, version[1] if version else text.partition("\n")[0] or "one that does not say which")


def runtimes(host: Host) -> Finding:
    """What is installed to run plans and programs with."""
    check = "GPU runtimes"
    found = {name: version for name in RUNTIMES if (version := _version(name)) is not None}
    told = ", ".join(f"{name} {version}" for name, version in found.items()) or "none installed"
    if host.text(VERSION) is None or "cuda-bindings" in found:
        return ok(check, told)
    return warn(check, f"{told}; there is a driver", "pip install 'tickpath[tensorrt]' or 'tickpath[tensorrt-rtx]'")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def persistence(host: Host) -> Finding:
    """Whether the driver unloads when nobody uses it: the next start then takes seconds more, and clocks are lost."""
    check = "GPU persistence"
    if host.text(VERSION) is None:
        return ok(check, "no GPU") if host.tells("proc/driver") else unseen(check, NOT_TOLD)
    try:
        modes = _modes()
    except Exception as error:  # whatever is the matter with a library of another's
        return unseen(check, f"NVML does not tell: {error}")
    off = [name for name, is_on in modes.items() if not is_on]
    return warn(check, f"off on {', '.join(off)}", "nvidia-smi -pm 1") if off else ok(check, "on")


def _modes() -> dict[str, bool]:
    import pynvml

    nvml: Any = pynvml
    nvml.nvmlInit()
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return {str(nvml.nvmlDeviceGetName(each)): bool(nvml.nvmlDeviceGetPersistenceMode(each)) for each in handles}
    finally:
        nvml.nvmlShutdown()


CHECKS: Final = (driver, runtimes, persistence)
