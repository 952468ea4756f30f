"""The simulated driver's own controls, in the process that has it loaded as libcuda.so.1."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


class Region(ctypes.Structure):
    """Device memory that a kernel uses."""

    _fields_ = (("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("writes", ctypes.c_uint64))


_NAMES: Final = (
    "device_allocations", "device_bytes", "host_allocations", "host_bytes", "streams", "events", "graphs", "execs",
    "context_retains", "work_pending", "work_unobserved", "work_done", "graph_launches", "calls", "violations",
)  # fmt: skip


class _Stats(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in _NAMES)


@dataclass(frozen=True)
class Stats:
    """What lives on the simulated device."""

    device_bytes: int
    living: tuple[int, ...]


class Simulator:
    """The library that cuda.bindings has loaded."""

    def __init__(self) -> None:
        self._library = library = ctypes.CDLL("libcuda.so.1")
        library.ticksim_reset.argtypes = (ctypes.c_uint64,)
        library.ticksim_reset.restype = None
        library.ticksim_calls.argtypes = (ctypes.c_char_p,)
        library.ticksim_calls.restype = ctypes.c_uint64
        library.ticksim_leaks.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
        library.ticksim_leaks.restype = ctypes.c_uint64
        library.ticksim_violation.restype = ctypes.c_char_p
        library.ticksim_inject.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int)
        library.ticksim_launch.argtypes = (
            ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
        )  # fmt: skip
        self._affine = ctypes.cast(library.ticksim_affine, ctypes.c_void_p)

    def reset(self, seed: int) -> None:
        self._library.ticksim_reset(seed)

    def calls(self, name: str) -> int:
        return int(self._library.ticksim_calls(name.encode()))

    def inject(self, name: str, nth: int, code: int) -> None:
        self._library.ticksim_inject(name.encode(), nth, code)

    def stats(self) -> Stats:
        raw = _Stats()
        self._library.ticksim_stats(ctypes.byref(raw))
        living = tuple(int(getattr(raw, name)) for name in _NAMES[: _NAMES.index("work_pending")])
        return Stats(raw.device_bytes, living)

    def assert_clean(self, leaks_max: int = 0, what: str = "") -> None:
        """No rule was broken, no guard damaged, and nothing lives."""
        violation = self._library.ticksim_violation()
        assert not violation, f"{what}: {violation.decode()}"
        assert self._library.ticksim_check_guards() == 0, what
        text = ctypes.create_string_buffer(2000)
        count = self._library.ticksim_leaks(text, len(text))
        assert count <= leaks_max, f"{what}: {text.value.decode()}"

    def launch_affine(self, stream: int, shape: tuple[int, int, int], regions: Sequence[Region]) -> int:
        """The code with which the driver takes, or does not take, y = x @ w + b."""
        arguments = (ctypes.c_uint64 * 3)(*shape)
        used = (Region * len(regions))(*regions)
        return int(
            self._library.ticksim_launch(stream, self._affine, arguments, ctypes.sizeof(arguments), used, len(regions))
        )
