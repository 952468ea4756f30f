"""From the flags of the command line to the loads they mean. Pure, apart from reading a file of arrivals."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from tickpath.client import Tls
from tickpath.client.address import TLS_PREFIX, TcpAddress
from tickpath.client.tls import tls_of
from tickpath.loadtest.arrivals import Unit, read_arrivals
from tickpath.loadtest.errors import UsageError, as_usage
from tickpath.loadtest.runner import ClosedLoop, Load
from tickpath.loadtest.schedule import Bursts, Constant, Poisson, Ramp, Replay, Schedule
from tickpath.loadtest.target import UNBOUNDED, Options
from tickpath.loadtest.targets import check_kind
from tickpath.loadtest.words import counted

# A range of more steps than this was mistyped: at ten seconds each it takes over an hour and a half.
STEPS_MAX: Final = 1000

# A rate is told as requests over the time from the first to the last: of fewer it would be more than a tenth off.
REQUESTS_MIN: Final = 10

HOST: Final = "127.0.0.1"
PORT: Final = 7070
PORT_MAX: Final = 65_535
# Python reads no number of thousands.
PORT_DIGITS_MAX: Final = 5
REQUEST_BYTES: Final = 280

# What a target of ours makes nothing of.
UNREAD: Final = {"tickpath": ("request_bytes",), "echo": ("model", "inputs", "token_file")}

# Which way of loading a flag belongs to.
ONLY_WITH: Final = dict.fromkeys(("distribution", "ramp_to", "burst"), "rate") | dict.fromkeys(
    ("column", "unit", "speed", "skip", "pause_max"), "replay"
)


@dataclass(frozen=True, slots=True)
class TargetFlags:
    """What to ask, and over what; each flag as it was given. Raises UsageError."""

    host: str | None = None
    port: int | None = None
    uds: str | None = None
    target: str = "tickpath"
    token_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    encrypted: bool = False
    model: str | None = None
    inputs: Path | None = None
    seed: int = 1
    request_bytes: int | None = None
    connections: int | None = None
    in_flight: int | None = None
    warmup: int = 200
    drain: float = 5.0
    cpu: int | None = None

    def __post_init__(self) -> None:
        with as_usage():
            check_kind(self.target)
        for name in ("host", "port"):
            if self.uds is not None and getattr(self, name) is not None:
                raise UsageError(f"--uds and --{name} are two places: leave one of them out")
        if self.uds is not None and (self.encrypted or self.tls is not None):
            raise UsageError("--uds and TLS: a Unix socket is not encrypted, leave the flags of TLS out")

    @property
    def options(self) -> Options:
        """What a target is made of."""
        inputs = None if self.inputs is None else str(self.inputs)
        size = self.request_bytes or REQUEST_BYTES
        return Options(self.address, self.model, inputs, self.seed, size, self.token_file, self.tls)

    @property
    def tls(self) -> Tls | None:
        """Files for TLS, which is spoken where one is named."""
        return tls_of(self.tls_ca, self.tls_cert, self.tls_key)

    @property
    def address(self) -> str:
        """As `parse_address` reads it."""
        if self.uds is not None:
            return f"unix:{self.uds}"
        host, port = self.host or HOST, self.port or PORT
        return str(TcpAddress(host, port, self.encrypted or self.tls is not None))

    def load(self, loop: Schedule | ClosedLoop) -> Load:
        """A closed loop has a connection for each request in flight, unless it is told otherwise."""
        default = loop.concurrency if isinstance(loop, ClosedLoop) else 1
        connections = self.connections or default
        if isinstance(loop, ClosedLoop) and connections > loop.concurrency:
            raise UsageError(
                f"{counted(connections, 'connection')} are more than the {loop.concurrency:,} in flight: "
                "fewer --connections, or more --concurrency"
            )
        return Load(
            options=self.options,
            loop=loop,
            target=self.target,
            connections=connections,
            in_flight_max=self.in_flight or UNBOUNDED,
            warmup=self.warmup,
            drain_s=self.drain,
            cpu=self.cpu,
        )

    def at(self, text: str) -> "TargetFlags":
        """The same for another target: `[KIND@][tls://]HOST:PORT` or `[KIND@]unix:PATH`."""
        kind, _, address = text.rpartition("@")
        place = replace(self, target=kind or "tickpath", host=None, port=None, uds=None)
        if address.startswith("unix:"):
            return replace(place, uds=address.removeprefix("unix:"))
        encrypted, address = address.startswith(TLS_PREFIX), address.removeprefix(TLS_PREFIX)
        host, _, port = address.rpartition(":")
        is_number = port.isascii() and port.isdigit() and len(port) <= PORT_DIGITS_MAX
        if not host or not (is_number and 0 < int(port) <= PORT_MAX):
            raise UsageError(f"a target is [KIND@]HOST:PORT or [KIND@]unix:PATH, {text!r} came")
        return replace(place, host=host.strip("[]"), port=int(port), encrypted=encrypted)


def check_used(*sides: TargetFlags) -> None:
    """A flag that none of the targets reads was meant to change something. Raises UsageError."""
    for name in ("request_bytes", "model", "inputs", "token_file"):
        given = [side.target for side in sides if getattr(side, name) is not None]
        if given and all(name in UNREAD.get(kind, ()) for kind in given):
            raise UsageError(f"{_flag(name)} means nothing to --target {given[0]}: leave it out")


@dataclass(frozen=True, slots=True)
class LoopFlags:
    """When to ask; each flag as it was given."""

    rate: str | None = None
    concurrency: str | None = None
    replay: Path | None = None
    duration: float | None = None
    distribution: Literal["constant", "poisson"] = "constant"
    ramp_to: float | None = None
    burst: str | None = None
    column: str | None = None
    unit: Unit | None = None
    speed: float = 1.0
    skip: int = 0
    pause_max: float | None = None

    @property
    def seconds(self) -> float:
        """Long enough that a p99 at 1,000/s is no thin one."""
        return self.duration or 10.0

    def loops(self, seed: int) -> list[Schedule | ClosedLoop]:
        """One for each run, at least one. Raises UsageError, and LoadTestError for what is wrong with a file."""
        given = [name for name in ("rate", "concurrency", "replay") if getattr(self, name) is not None]
        if len(given) != 1:
            came = " and ".join(map(_flag, given)) or "none of them"
            raise UsageError(f"say how to load, in one way: --rate R, --concurrency N or --replay FILE; {came} came")
        self._check_unused(given[0])
        if self.replay is not None:
            return [self._replayed(self.replay)]
        if self.concurrency is not None:
            steps = parse_range(self.concurrency, "--concurrency")
            if any(step != int(step) for step in steps):
                raise UsageError(f"--concurrency counts requests in whole numbers, {self.concurrency!r} came")
            return [ClosedLoop(int(step), self.seconds) for step in steps]
        return [self.at_rate(rate_hz, seed) for rate_hz in parse_range(self.rate or "")]

    def at_rate(self, rate_hz: float, seed: int) -> Schedule:
        """The schedule of this shape at this rate. Raises UsageError."""
        with as_usage():
            schedule = self._shaped(rate_hz, seed)
            count = len(schedule.offsets_ns())
        if count < REQUESTS_MIN:
            raise UsageError(
                f"{schedule.describe()} is {counted(count, 'request')} in {self.seconds:g} s, too few for any figure "
                f"({REQUESTS_MIN} at least): a higher --rate or a longer --duration"
            )
        return schedule

    def _shaped(self, rate_hz: float, seed: int) -> Schedule:
        if self.ramp_to is not None:
            return Ramp(rate_hz, self.ramp_to, self.seconds)
        if self.burst is not None:
            on_s, off_s = _milliseconds(self.burst)
            return Bursts(rate_hz, on_s, off_s, self.seconds)
        if self.distribution == "poisson":
            return Poisson(rate_hz, self.seconds, seed)
        return Constant(rate_hz, self.seconds)

    def _check_unused(self, given: str) -> None:
        """A flag that changes nothing was meant to change something."""
        default = LoopFlags()
        changed = [name for name in ONLY_WITH if getattr(self, name) != getattr(default, name)]
        for name in changed:
            if ONLY_WITH[name] != given:
                raise UsageError(f"{_flag(name)} has no meaning with --{given}: leave it out")
        if given == "rate" and len(changed) > 1:
            raise UsageError(f"{' and '.join(map(_flag, changed))}: a schedule has one shape, leave the others out")

    def _replayed(self, path: Path) -> Replay:
        arrivals_ns = read_arrivals(path, self.column, self.unit)
        with as_usage():
            return Replay(arrivals_ns, path.name, self.speed, self.skip, self.pause_max, self.duration)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def parse_range(text: str, flag: str = "--rate") -> list[float]:
    """`R`, or `START:END[:STEP]` with its end included and a step of 1 unless told, as perf_analyzer has it."""
    try:
        start, end, step = map(float, _three(text.split(":")))
    except ValueError:
        raise UsageError(f"{flag} takes a number, or START:END:STEP, {text!r} came") from None
    if not 0 < start <= end < float("inf") or not step > 0:
        raise UsageError(f"{flag} takes a number above zero, or START:END:STEP that ascends from one, {text!r} came")
    # A step that is a fraction may miss the end by a rounding.
    count = int((end - start) / step + 1e-9) + 1
    if count > STEPS_MAX:
        raise UsageError(f"{flag} {text} has {count:,} steps, {STEPS_MAX:,} are the most: a larger STEP")
    return [start + index * step for index in range(count)]


def _three(parts: list[str]) -> list[str]:
    if len(parts) > 3:
        raise ValueError
    return [parts[0], parts[-1] if len(parts) == 1 else parts[1], parts[2] if len(parts) == 3 else "1"]


def _milliseconds(burst: str) -> tuple[float, float]:
    found = re.fullmatch(r"(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)", burst)
    if found is None:
        raise UsageError(f"--burst takes ON:OFF in milliseconds, such as 10:90, {burst!r} came")
    return float(found[1]) / 1e3, float(found[2]) / 1e3
