"""The simulated driver's control surface, for programs that run on it (see driver/ticksim.h)."""

import ctypes
from collections.abc import Sequence
from typing import Any, Final

LIBRARY: Final = "libcuda.so.1"
LEAKS_BYTES: Final = 4096
STATS: Final = (
    *("device_allocations", "device_bytes", "host_allocations", "host_bytes"),
    *("streams", "events", "graphs", "execs", "context_retains"),
    *("work_pending", "work_unobserved", "work_done", "calls", "violations"),
)


class Region(ctypes.Structure):
    """Memory that a kernel uses: device address, bytes, and whether it writes there."""

    _fields_ = (("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("writes", ctypes.c_uint64))


class AffineShape(ctypes.Structure):
    """The shape of y = x @ w + b: x (rows, inputs), w (inputs, outputs), b (outputs)."""

    _fields_ = (("rows", ctypes.c_uint64), ("inputs", ctypes.c_uint64), ("outputs", ctypes.c_uint64))


class _Stats(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in STATS)


class Simulator:
    """The library that this process uses as its CUDA driver. Raises OSError where it uses another, or none."""

    def __init__(self) -> None:
        self._library = library = ctypes.CDLL(LIBRARY)
        if not hasattr(library, "ticksim_reset"):
            raise OSError(f"{LIBRARY} is a real driver: set LD_LIBRARY_PATH to the folder of the simulated one")
        library.ticksim_reset.argtypes = (ctypes.c_uint64,)
        library.ticksim_device_bytes.argtypes = (ctypes.c_uint64,)
        library.ticksim_inject.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int)
        library.ticksim_calls.argtypes = (ctypes.c_char_p,)
        library.ticksim_leaks.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
        library.ticksim_violation.restype = ctypes.c_char_p
        for name in ("ticksim_seed", "ticksim_calls", "ticksim_leaks", "ticksim_check_guards"):
            getattr(library, name).restype = ctypes.c_uint64
        library.ticksim_launch.argtypes = (
            *(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t),
            *(ctypes.POINTER(Region), ctypes.c_size_t),
        )

    def reset(self, seed: int) -> None:
        """Forget everything, also what leaked, and start anew with this seed."""
        self._library.ticksim_reset(seed)

    @property
    def seed(self) -> int:
        """The seed of the last reset."""
        return int(self._library.ticksim_seed())

    def strict(self, on: bool) -> None:
        """Whether a violation ends the process, or is only kept."""
        self._library.ticksim_strict(on)

    def fence(self, on: bool) -> None:
        """Whether pages of pinned memory are closed to the host while unfinished work uses them."""
        self._library.ticksim_fence(on)

    def background(self, on: bool) -> None:
        """Whether work also moves on between calls; then the seed no longer fixes the order."""
        self._library.ticksim_background(on)

    def check_leaks(self, on: bool) -> None:
        """Whether it is a violation to destroy the context while something lives in it."""
        self._library.ticksim_check_leaks(on)

    def device_bytes(self, total: int) -> None:
        """How much device memory there is."""
        self._library.ticksim_device_bytes(total)

    def inject(self, name: str, nth: int, code: int) -> None:
        """Let the nth call from now of `name` fail with `code`; "*": of any function; "work": the nth piece of work."""
        self._library.ticksim_inject(name.encode(), nth, code)

    def calls(self, name: str = "*") -> int:
        """How often it was called since the last reset."""
        return int(self._library.ticksim_calls(name.encode()))

    def violation(self) -> str:
        """The first violation since the last reset, or an empty text."""
        return bytes(self._library.ticksim_violation()).decode()

    def leaks(self) -> str:
        """What lives in the context, a line each; an empty text if nothing does."""
        text = ctypes.create_string_buffer(LEAKS_BYTES)
        self._library.ticksim_leaks(text, LEAKS_BYTES)
        return text.value.decode()

    def check_guards(self) -> int:
        """How many allocations were written beyond, by now."""
        return int(self._library.ticksim_check_guards())

    def stats(self) -> dict[str, int]:
        """What is alive, and what was done since the last reset."""
        stats = _Stats()
        self._library.ticksim_stats(ctypes.byref(stats))
        return {name: getattr(stats, name) for name in STATS}

    def launch(self, stream: int, kernel: Any, arguments: ctypes.Structure, regions: Sequence[Region]) -> int:
        """Enqueue host arithmetic on device memory as a kernel. Returns the driver's code."""
        array = (Region * len(regions))(*regions)
        run = ctypes.cast(kernel, ctypes.c_void_p)
        size = ctypes.sizeof(arguments)
        return int(self._library.ticksim_launch(stream, run, ctypes.byref(arguments), size, array, len(regions)))

    def affine(self, stream: int, shape: AffineShape, regions: Sequence[Region]) -> int:
        """Enqueue y = x @ w + b in float32; regions x, w, b, y. Returns the driver's code."""
        return self.launch(stream, self._library.ticksim_affine, shape, regions)
