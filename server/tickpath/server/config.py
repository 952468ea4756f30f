"""The server's configuration: one frozen struct, made from the command line or a TOML file, checked once at the
edge."""

import re
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from tickpath.logs import LogFormat
from tickpath.observe.records import BUCKETS_MAX
from tickpath.server.access_config import (
    WORDS,
    ClientConfig,
    Group,
    Mode,
    TlsConfig,
    asks_who_comes,
    is_loopback,
    problem_of,
)
from tickpath.server.config_types import PLACE_PATTERN, Place, Port, Positive, Seconds
from tickpath.server.config_words import in_words
from tickpath.server.numeric_config import Limit, NumericPolicy, Reaction
from tickpath.server.quiet import HOURS_PATTERN
from tickpath.server.record_config import RecordConfig, check_record
from tickpath.server.trace_config import ENDPOINT_PATTERN, ENDPOINT_WORDS, TraceConfig, check_trace

NAME_CHARS_MAX = 64
NAME_PATTERN = rf"^[A-Za-z0-9_.-]{{1,{NAME_CHARS_MAX}}}\Z"
NAME_WORDS = f"of letters, digits, _ . - and at most {NAME_CHARS_MAX} of them"
Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
FILE_NAME_PATTERN = r"^(?!\.{1,2}\Z)[^/\0]+\Z"
FileName = Annotated[str, msgspec.Meta(pattern=FILE_NAME_PATTERN)]
_WORDS = {
    NAME_PATTERN: NAME_WORDS,
    PLACE_PATTERN: "that is not empty and has no NUL in it",
    HOURS_PATTERN: "of hours as 09:30-16:00",
    FILE_NAME_PATTERN: "that names a file beside the model, without a folder",
    ENDPOINT_PATTERN: ENDPOINT_WORDS,
    **WORDS,
}
# A server of one core has no time for more; and every label set stays small enough to look at.
MODELS_MAX = 64
# A request of more rows is a batch job; and each number of rows has its place in two tables.
ROWS_MAX = 65536
Bucket = Annotated[int, msgspec.Meta(gt=0, le=ROWS_MAX)]
# A share or an amount: what is no number, or no bound, gates nothing.
Tolerance = Annotated[float, msgspec.Meta(ge=0, le=1e300)]
Shape = tuple[Positive | Literal["N"], ...]


class ConfigError(Exception):
    """The configuration can't be used. The text says what was expected, what came and what to do."""


class FeedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a model's feeds are kept (see feed_spec.py)."""

    # window: an answer is that of the last rows alone. carry: states run on from the feed's start. None: window, where
    # there is one.
    mode: Literal["window", "carry"] | None = None
    # Its rows; None: the size of the input's time axis, or what the file says.
    window: Positive | None = None
    # Which axis of an input is time.
    axis: Annotated[int, msgspec.Meta(ge=0, le=16)] = 1
    # The inputs that take a state, each with the output that gives it.
    state: dict[str, str] = {}
    # Feeds of a step model that may step together after their replies. A tick that comes meanwhile waits for all of
    # them, and on the CPU large models gain nothing (docs/adr/0008), so it is asked for. 16: more rows at once than
    # caches hold only make the wait longer.
    together: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    # Ticks before the window is full: refuse (NOT_READY, the row is taken), or answer as if zeros had come before.
    warm_up: Literal["refuse", "pad"] = "refuse"


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model to serve. `name` defaults to the file's stem.

    `shapes` fixes what the file leaves open: input name -> sizes, `"N"` for the batch axis.
    """

    path: Place
    name: Name | None = None
    version: Name = "1"
    # The batch sizes to capture; None: tickpath.graphs.buckets.DEFAULT_BUCKETS, or the only one that the model allows.
    buckets: tuple[Bucket, ...] | None = None
    shapes: dict[str, Shape] = {}
    # auto: inline on the loop where the model is short, on a thread of its own where it is long (see executor.py).
    executor: Literal["auto", "inline", "thread"] = "auto"
    # An input with a NaN or an infinity. refuse: BAD_VALUE, since engines hide NaN (seen: DeepLOB, GRU, forests give a
    # finite answer). flag: answered, and marked. pass: nobody looks.
    non_finite: Reaction = "refuse"
    # An output with one: the same, but ENGINE_FAILED. A model that is fed finite numbers seldom makes others.
    output_non_finite: Reaction = "pass"
    # The least and the largest value that outputs may have, all of them or by name; and what becomes of others.
    output_min: Limit = None
    output_max: Limit = None
    out_of_bounds: Reaction = "refuse"
    # What stands in for an answer that the engine could not give, always marked. last: the session's last good one;
    # cpu: the same request on the CPU engine, of a model that runs on another.
    fallback: Literal["none", "last", "cpu"] = "none"
    # Whether it also stands in for an answer that is refused for its values.
    fallback_for_refused: bool = False
    # How old a last answer may be. In a second a client asks again many times; a model that fails for longer is out of
    # order, and whoever trades on it must be told.
    fallback_age_max_s: Seconds = 1.0
    # Requests that may wait for a thread executor. 64 of a 1 ms model are 64 ms: whoever is behind that is better
    # told at once.
    queue_max: Positive = 64
    # Requests that wait may share a run, of up to so many rows; 0: none do. A model that answers within the receipt has
    # none that wait, so with this it runs on a thread.
    batch_rows_max: Annotated[int, msgspec.Meta(ge=0, le=ROWS_MAX)] = 0
    # How long a request may wait for others to share its run, where nothing else holds it up.
    batch_us: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    # What to do about a .plan that is damaged, or of another release or GPU: build it again as its sidecar says, or run
    # NAME.onnx beside it on the CPU. Both can take what a start has no time for, so they are asked for.
    on_bad_plan: Literal["refuse", "rebuild", "cpu"] = "refuse"
    # Processors that one prediction may use. More than one helps large models only, and costs them a hand-off.
    threads: Annotated[int, msgspec.Meta(gt=0, le=256)] = 1
    # Whether this version answers those who name the model alone; of several versions of one name exactly one does.
    live: bool = True
    # The golden sample beside the model file; None: golden.npz if it is there (see golden.py).
    golden: FileName | None = None
    # How far an answer may be from the right one as the model is verified; None: by its precision (verification.py).
    rtol: Tolerance | None = None
    atol: Tolerance | None = None
    # How far a reloaded version's answers may be from the live one's, as a share of an output's largest value.
    max_change: Tolerance | None = None
    # None: what the model itself shows of its feeds (see feed_spec.py).
    feed: FeedConfig | None = None
    # Whoever made the file may run code here: a .pt2 file that holds more than operators and weights is refused else.
    trust: bool = False
    # Where a .pt2 file runs; a .plan is for a GPU, and all else for the CPU. cpu: that is everywhere, so that a file
    # does the same on a laptop, in CI and in production until somebody asks for the GPU.
    device: Literal["cpu", "cuda"] = "cpu"
    # The rest is for models on a CUDA device (tickpath.graphs.device). spin: the quickest, for the core that it costs.
    # block: sleep until the device wakes us. poll: the loop launches, and looks between two turns whether it is done.
    device_wait: Literal["spin", "block", "poll"] = "spin"
    # With poll, slots of each bucket, so requests on the device at a time: one that runs, and one that is copied in and
    # launched meanwhile. More only take the choice of what runs next from the queue.
    device_slots: Annotated[int, msgspec.Meta(ge=1, le=16)] = 2
    # copied: right for every size. mapped: no copy, but each access of a kernel crosses the bus.
    device_memory: Literal["copied", "mapped"] = "copied"
    # prefer: a bucket that can't be captured runs without a graph. require: then the model is refused.
    device_graphs: Literal["prefer", "require"] = "prefer"

    @property
    def served_name(self) -> str:
        return self.name or Path(self.path).stem

    @property
    def numeric(self) -> NumericPolicy:
        """What becomes of values that are none, or out of bounds."""
        return NumericPolicy(
            self.non_finite, self.output_non_finite, self.out_of_bounds, self.output_min, self.output_max
        )


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole server. `port` 0 takes a free one; `uds` adds a Unix socket; `observer_port` None runs no observer."""

    models: tuple[ModelConfig, ...] = ()
    # A folder of models and their versions, served beside those above (see repository.py).
    repository: Place | None = None
    host: Place = "127.0.0.1"
    port: Port | None = 7070
    uds: Place | None = None
    # What its metrics call it (tickpath_server_info); None: by its host and the address it listens on.
    server_name: Name | None = None
    # Who may connect there: its owner, and the group where there is one.
    uds_mode: Mode | None = None
    uds_group: Group | None = None
    # Who may connect and what for; none: whoever can reach an address may ask anything (see access.py).
    clients: tuple[ClientConfig, ...] = ()
    # TLS on the TCP port; None: none.
    tls: TlsConfig | None = None
    # Listen beyond this machine though nobody is asked who he is.
    insecure: bool = False
    observer_host: Place = "127.0.0.1"
    observer_port: Port | None = 9090
    # Tokens, one of which a scrape must bring; None: none is asked for.
    observer_token_file: Place | None = None
    # Whether /metrics has Triton's names, too (tickpath.observe.triton_names), for dashboards made for those.
    observer_triton_names: bool = False
    # The Open Inference Protocol's door (tickpath.door), a process beside the core: REST, gRPC, or neither.
    oip_host: Place = "127.0.0.1"
    oip_port: Port | None = None
    oip_grpc_port: Port | None = None
    # Whether who comes by the door may load and unload, as who may open `admin` can; of `clients`, those with `admin`.
    oip_admin: bool = False
    # The token of those who bring none to the door; None: then they have none.
    oip_token_file: Place | None = None
    # What is written to stderr: lines for people, or JSON objects for programs.
    log_format: LogFormat = "human"
    spin: bool = False
    # How long the loop polls after a request before it sleeps. 50 µs is about what going to sleep and waking up costs,
    # so polling never costs more than twice what it can save; at 2,000 requests a second it is a tenth of a core.
    poll_us: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 50
    cpu: Annotated[int, msgspec.Meta(ge=0)] | None = None
    # Sessions: each costs one buffer (32 KiB until a larger frame comes) and one descriptor.
    sessions_max: Positive = 1024
    # Requests of one session that wait for an answer: enough to hide any round trip, and half of a model's queue, so
    # that one client alone can't take it from all others.
    in_flight_max: Positive = 32
    # From a frame's first byte to its last. A whole 16 MB frame takes 13 ms at 10 Gbit/s; only a dead or hostile peer
    # needs 5 s.
    frame_s: Seconds = 5.0
    # From connecting to Hello.
    hello_s: Seconds = 5.0
    # Feeds of one session: an index's members with room to spare. They take memory, so one client may not have all.
    feeds_per_session_max: Positive = 512
    feeds_max: Positive = 4096
    # What all feeds together may hold. A window of DeepLOB for each of 4096, kept twice (see window.py), is half of it.
    feed_bytes_max: Positive = 256 * 1024 * 1024
    # After so long without a tick a feed is forgotten: a client that is started again comes sooner, one that changed
    # its mind never does.
    feed_idle_s: Seconds = 900.0
    # Bytes of replies waiting for a client that does not read, before the server reads nothing more from it. (The
    # loop's transports count them in 32 bits, one for the sign.)
    write_bytes_max: Annotated[int, msgspec.Meta(gt=0, lt=2**31)] = 1024 * 1024
    # How long such a client may take nothing at all before it is dropped.
    write_stall_s: Seconds = 5.0
    # The Unix socket by which `tickpath reload` and its like change what is served; only this user may use it.
    admin: Place | None = None
    # How often the repository is looked at for what is new; None: only when asked.
    watch_s: Seconds | None = None
    # Hours of the day, local time, in which nothing is loaded, unloaded or collected: `09:30-16:00`.
    quiet_hours: tuple[Annotated[str, msgspec.Meta(pattern=HOURS_PATTERN)], ...] = ()
    # What is asked and answered, kept in files (see record_config.py); None: nothing is.
    record: RecordConfig | None = None
    # Requests that leave as OpenTelemetry traces, by the observer (see trace_config.py); None: none does.
    trace: TraceConfig | None = None
    # From SIGTERM to the end: what is in flight is answered, new requests are refused NOT_READY.
    drain_s: Seconds = 5.0
    # A frame of 64 MiB holds 524 DeepLOB windows of 8 rows; a model that needs more should not travel over a socket.
    # Each session keeps a buffer as large as its largest frame was: sessions_max times this is the most they can hold.
    # (4096 bytes hold any Hello; the length before a frame has 32 bits.)
    frame_bytes_max: Annotated[int, msgspec.Meta(ge=4096, lt=2**32)] = 64 * 1024 * 1024


def check(config: ServerConfig) -> ServerConfig:
    """The rules that span fields. Raises ConfigError."""
    if not config.models and config.repository is None:
        raise ConfigError("no model to serve: name an .onnx file or a repository, or add [[models]]")
    _check_names(config.models)
    if len(config.models) > MODELS_MAX:
        raise ConfigError(f"{len(config.models)} models, one server takes {MODELS_MAX}: serve the others from another")
    for model in config.models:
        check_model(model)
    for hours in config.quiet_hours:
        if hours[:5] == hours[6:]:
            raise ConfigError(
                f"quiet_hours: {hours} ends as it begins, which is never quiet: write 00:00-12:00 and so on"
            )
    _check_places(config)
    if config.oip_admin and config.admin is None:
        raise ConfigError("oip_admin is for loading and unloading through `admin`, which is not set: set it, too")
    has_door = (config.oip_port, config.oip_grpc_port) != (None, None)
    if config.tls is not None and config.uds is None and has_door:
        raise ConfigError("the door goes to the server by its Unix socket where the port speaks TLS: give a uds, too")
    if problem := problem_of(config.clients, config.tls, has_door):
        raise ConfigError(problem)
    if not config.insecure:
        _check_open(config)
    if config.record is not None and (why := check_record(config.record)):
        raise ConfigError(why)
    if config.trace is not None and (why := check_trace(config.trace, config.observer_port is not None)):
        raise ConfigError(why)
    return config


def _check_places(config: ServerConfig) -> None:
    """Where it listens."""
    if config.port is None and config.uds is None:
        raise ConfigError("nowhere to listen: give a port or a Unix socket")
    for key in ("uds_mode", "uds_group"):
        if config.uds is None and getattr(config, key) is not None:
            raise ConfigError(f"{key} is of the Unix socket's file, and there is none: give a uds, too")
    places = {
        "port": (config.host, config.port),
        "observer_port": (config.observer_host, config.observer_port),
        "oip_port": (config.oip_host, config.oip_port),
        "oip_grpc_port": (config.oip_host, config.oip_grpc_port),
    }
    for (one, (host, port)), (other, place) in combinations(places.items(), 2):
        if port and place == (host, port):  # 0 is one of its own each time
            raise ConfigError(f"{one} and {other} are both {port} of {host}: give each its own")


def _check_open(config: ServerConfig) -> None:
    """Whoever can reach an address beyond this machine can ask there, unless somebody looks who he is."""
    asks = asks_who_comes(config.clients, config.tls)
    open_places = {
        "host": config.port is not None and not asks and config.host,
        "oip_host": (config.oip_port, config.oip_grpc_port) != (None, None) and not config.clients and config.oip_host,
        "observer_host": config.observer_port is not None and not config.observer_token_file and config.observer_host,
    }
    for key, host in open_places.items():
        if host and not is_loopback(host):
            remedy = "observer_token_file" if key == "observer_host" else "[[clients]] with tokens, and [tls]"
            raise ConfigError(
                f"{key} {host}: that is more than this machine, and whoever reaches it is asked for nothing: give "
                f"{remedy}, listen on 127.0.0.1, or say --insecure (insecure = true) where only those who may can "
                "get there"
            )


def _check_names(models: tuple[ModelConfig, ...]) -> None:
    """Several versions may have one name; exactly one of them answers those who name the model alone."""
    versions: dict[str, list[ModelConfig]] = {}
    for model in models:
        versions.setdefault(model.served_name, []).append(model)
    for name, same in versions.items():
        if len({model.version for model in same}) < len(same):
            raise ConfigError(f"two models are named {name!r}: give each its own name, or its own version")
        if (live := sum(model.live for model in same)) != 1:
            raise ConfigError(f"model {name!r}: {live} of its {len(same)} versions are live: let it be one")


def check_model(model: ModelConfig) -> ModelConfig:
    """The rules that span a model's fields. Raises ConfigError."""
    buckets = model.buckets
    if buckets is not None and (not buckets or list(buckets) != sorted(set(buckets))):
        raise ConfigError(f"model {model.served_name!r}: buckets must ascend, {list(buckets)} came")
    if buckets is not None and len(buckets) > BUCKETS_MAX:
        raise ConfigError(
            f"model {model.served_name!r}: {len(buckets)} buckets, {BUCKETS_MAX} is the most: leave some out"
        )
    if not re.match(NAME_PATTERN, model.served_name):
        raise ConfigError(
            f"{model.path}: {model.served_name!r} can't be a model's name, which is {NAME_WORDS}: give it a --name, "
            "or a name in the configuration"
        )
    if model.batch_rows_max and model.executor == "inline":
        raise ConfigError(
            f"model {model.served_name!r}: inline, no request waits for another to share a run: leave batch_rows_max "
            'or executor = "inline" out'
        )
    if model.batch_us and not model.batch_rows_max:
        raise ConfigError(f"model {model.served_name!r}: batch_us is for batch_rows_max, which is 0: give both")
    if model.device_wait == "poll":
        _check_poll(model)
    for tensor, shape in model.shapes.items():
        if shape.count("N") > 1:
            raise ConfigError(f"model {model.served_name!r}: the shape of {tensor!r} has more than one batch axis N")
    return model


def _check_poll(model: ModelConfig) -> None:
    """What needs a thread of its own has none where the loop polls."""
    needs = {
        "batch_rows_max": bool(model.batch_rows_max),
        f'executor = "{model.executor}"': model.executor != "auto",
        'fallback = "cpu"': model.fallback == "cpu",
    }
    for setting, is_set in needs.items():
        if is_set:
            raise ConfigError(
                f'model {model.served_name!r}: with device_wait = "poll" the loop itself looks after the device, which '
                f'{setting} does not go with: leave it out, or wait by "spin" or "block"'
            )


def make_config(values: dict[str, object], source: str = "configuration") -> ServerConfig:
    """A checked configuration from plain values. Raises ConfigError naming the field, and `source`, where the values
    are from."""
    return check(convert(values, ServerConfig, source))


Kind = TypeVar("Kind", bound=msgspec.Struct)


def convert(values: dict[str, object], kind: type[Kind], source: object) -> Kind:
    """Plain values as a struct. Raises ConfigError naming `source`, the field, what is allowed and what came."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {in_words(str(error), values, kind, _WORDS, _tables())}") from None


def _tables() -> dict[str, type[msgspec.Struct]]:
    """Where in a configuration which struct lies."""
    return {
        "$.models": ModelConfig,
        "$.clients": ClientConfig,
        "$.tls": TlsConfig,
        "$.record": RecordConfig,
        "$.trace": TraceConfig,
    }
