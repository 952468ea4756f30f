"""The configuration: what a file and plain values become, and the one line that every broken rule ends in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.serving import write_config

from tickpath.observe.records import BUCKETS_MAX
from tickpath.server.config import MODELS_MAX, ConfigError, ServerConfig, make_config
from tickpath.server.config_file import read_config
from tickpath.server.record_config import RecordConfig

MODEL = {"path": "btc.onnx"}

WHOLE = """
host = "::1"
port = 7171
uds = "/run/tickpath.sock"
uds_mode = "0620"
uds_group = "desk"
insecure = true
observer_host = "0.0.0.0"
observer_port = 9191
observer_token_file = "scrapers"
oip_host = "::1"
oip_port = 8000
oip_grpc_port = 8001
oip_admin = true
oip_token_file = "door"
log_format = "json"
server_name = "lse-3"
observer_triton_names = true
spin = true
cpu = 3
sessions_max = 10
in_flight_max = 11
frame_s = 1.5
hello_s = 2
write_bytes_max = 4096
write_stall_s = 0.5
admin = "/run/tickpath/admin.sock"
watch_s = 2.5
quiet_hours = ["09:30-16:00", "23:00-01:15"]
drain_s = 0.25
frame_bytes_max = 8192

feeds_per_session_max = 3
feeds_max = 5
feed_bytes_max = 1000000
feed_idle_s = 7

[record]
dir = "recordings"
ring_bytes = 65536
segment_bytes = 8192
segment_s = 60
bytes_max = 1000000
when_full = "stop"

[[models]]
path = "btc.onnx"
name = "btc"
version = "2025-10-26"
buckets = [1, 16]
executor = "thread"
non_finite = "pass"
queue_max = 3
shapes = { window = ["N", 100, 40], scale = [] }

[[models]]
path = "/models/eth.onnx"

[tls]
certificate = "server.pem"
key = "server.key"
client_ca = "/etc/ca.pem"
client_certificates = "optional"

[[clients]]
name = "desk-7"
token_file = "tokens/desk-7"
certificate = "URI:spiffe://desk/7"
models = ["btc"]
admin = true
sessions_max = 4
in_flight_max = 64
rate_max = 2000
rate_burst = 50

[trace]
endpoint = "http://127.0.0.1:4318/v1/traces"
headers_file = "secrets/otlp"
ca = "/etc/ca.pem"
sample = 0.01
slow = 5
"""


def test_a_model_is_all_that_is_needed() -> None:
    config = make_config({"models": [MODEL]})
    (model,) = config.models
    assert (model.served_name, model.version, model.buckets, model.executor) == ("btc", "1", None, "auto")
    assert (config.host, config.port, config.uds, config.observer_port) == ("127.0.0.1", 7070, None, 9090)


def test_every_field_can_be_told_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "tickpath.toml").write_text(WHOLE)
    config = make_config(read_config(tmp_path / "tickpath.toml"))
    defaults = make_config({"models": [MODEL]})
    told = {field: getattr(config, field) for field in ServerConfig.__struct_fields__}
    unsaid = {field for field, value in told.items() if value == getattr(defaults, field)}
    assert unsaid == {"poll_us", "repository"}
    assert config.trace is not None
    assert (config.trace.headers_file, config.trace.ca) == (str(tmp_path / "secrets/otlp"), "/etc/ca.pem")
    btc, eth = config.models
    assert (btc.shapes, btc.buckets) == ({"window": ("N", 100, 40), "scale": ()}, (1, 16))
    assert (btc.executor, btc.non_finite, btc.queue_max, btc.version) == ("thread", "pass", 3, "2025-10-26")
    assert eth.served_name == "eth"
    assert config.tls is not None
    assert (config.tls.certificate, config.tls.client_ca) == (str(tmp_path / "server.pem"), "/etc/ca.pem")
    (client,) = config.clients
    assert (client.token_file, client.rate_max) == (str(tmp_path / "tokens/desk-7"), 2000)
    assert (config.observer_token_file, config.oip_token_file) == (str(tmp_path / "scrapers"), str(tmp_path / "door"))
    assert config.record == RecordConfig(str(tmp_path / "recordings"), 65536, 8192, 60, 1000000, "stop")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"dir": ""}, "that is not empty and has no NUL in it"),
        ({"dir": "r", "ring_bytes": 65537}, "multiple of 8, 65537 came"),
        ({"dir": "r", "bytes_max": 65536}, "must hold a segment and what waits in memory"),
        ({"dir": "r", "when_full": "wait"}, "'drop_oldest', 'stop'"),
        ({"dir": "r", "ring": 1}, "there are dir, ring_bytes, segment_bytes"),
    ],
)
def test_a_recording_that_cant_be(record: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_config({"models": [MODEL], "record": record})


@pytest.mark.parametrize(
    "place", ["127.0.0.1:65536", "127.0.0.1:0", "h:port", ":80", "[::1", "[x]", "[::1]:-1", "h:99999999999"]
)
def test_an_endpoint_that_is_no_place(place: str) -> None:
    with pytest.raises(ConfigError, match="trace: endpoint: a host and a port"):
        make_config({"models": [MODEL], "trace": {"endpoint": f"http://{place}/v1/traces"}})


def test_a_models_path_counts_from_the_files_folder(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    path = write_config(folder, [{"path": "../models/a.onnx"}, {"path": "/b.onnx"}])
    a, b = make_config(read_config(path)).models
    assert Path(a.path).resolve() == tmp_path / "models" / "a.onnx"
    assert b.path == "/b.onnx"


def test_a_file_says_false_for_no_port(tmp_path: Path) -> None:
    config = make_config(read_config(write_config(tmp_path, [MODEL], port=False, observer_port=False, uds="/s")))
    assert (config.port, config.observer_port, config.spin) == (None, None, False)


@pytest.mark.parametrize(
    "ports", [{"port": 0, "oip_port": 0, "observer_port": 0}, {"oip_port": 7070, "oip_host": "::1"}]
)
def test_ports_that_are_no_others(ports: dict[str, Any]) -> None:
    make_config({"models": [MODEL]} | ports)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, ["models"]),
        ({"models": []}, ["no model to serve", ".onnx"]),
        ({"models": 3}, ["Expected `array`", "$.models"]),
        ({"models": ["btc.onnx"]}, ["Expected `object`", "$.models[0]"]),
        ({"models": [{}]}, ["path", "$.models[0]"]),
        ({"models": [MODEL, MODEL]}, ["two models are named 'btc'", "own name"]),
        ({"models": [MODEL, {"path": "x.onnx", "name": "btc"}]}, ["two models are named 'btc'"]),
        ({"models": [{"path": f"{n}.onnx"} for n in range(MODELS_MAX + 1)]}, [f"{MODELS_MAX + 1} models", "another"]),
        ({"prot": 7070}, ["unknown field `prot`", "there are models, repository, host, port, uds"]),
        ({"port": 65536}, ["65535", "$.port"]),
        ({"port": -1}, ["$.port"]),
        ({"port": "7070"}, ["int", "$.port"]),
        ({"port": True}, ["int", "bool", "$.port"]),
        ({"port": None, "uds": None}, ["nowhere to listen", "port", "Unix socket"]),
        ({"uds_mode": "0660"}, ["uds_mode", "give a uds"]),
        ({"uds_group": "desk"}, ["uds_group", "give a uds"]),
        ({"port": 9090}, ["port and observer_port are both 9090 of 127.0.0.1", "its own"]),
        ({"oip_port": 9090}, ["observer_port and oip_port are both 9090"]),
        ({"oip_port": 8000, "oip_grpc_port": 8000}, ["oip_port and oip_grpc_port are both 8000"]),
        ({"uds": ""}, ["$.uds"]),
        ({"uds": "\0abstract"}, ["$.uds"]),
        ({"host": ""}, ["$.host"]),
        ({"host": "a\0b"}, ["$.host"]),
        ({"observer_port": 70000}, ["$.observer_port"]),
        ({"spin": 1}, ["bool", "$.spin"]),
        ({"cpu": -1}, ["$.cpu"]),
        ({"poll_us": -1}, ["$.poll_us"]),
        *(
            ({"models": [MODEL | {"device_wait": "poll"} | more]}, ['device_wait = "poll"', *more, "spin", "block"])
            for more in ({"batch_rows_max": 4}, {"executor": "thread"}, {"fallback": "cpu"})
        ),
        ({"models": [MODEL | {"device_slots": 0}]}, ["device_slots"]),
        ({"models": [MODEL | {"device_slots": 17}]}, ["device_slots"]),
        ({"sessions_max": 0}, ["$.sessions_max"]),
        ({"sessions_max": 2**70}, ["$.sessions_max"]),
        ({"in_flight_max": 0}, ["$.in_flight_max"]),
        ({"write_bytes_max": 0}, ["$.write_bytes_max"]),
        ({"write_bytes_max": 2**31}, ["2147483647", "$.write_bytes_max"]),
        ({"frame_bytes_max": 100}, ["4096", "$.frame_bytes_max"]),
        ({"frame_bytes_max": 2**32}, ["$.frame_bytes_max"]),
        *(
            ({field: value}, [f"$.{field}"])
            for field in ("frame_s", "hello_s", "write_stall_s", "drain_s")
            for value in (0, -1.0, float("inf"), float("nan"))
        ),
    ],
    ids=str,
)
def test_every_rule_is_one_line_that_names_the_field(values: dict[str, Any], says: list[str]) -> None:
    line = refused(lambda: make_config({"models": [MODEL]} | values if values else {}))
    assert [text for text in says if text not in line] == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"name": "a b"}, ["letters, digits", "$.models[0].name"]),
        ({"name": ""}, ["name"]),
        ({"name": "a\n"}, ["name"]),
        ({"name": "x" * 65}, ["name"]),
        ({"version": "1/2"}, ["version"]),
        ({"path": "a\0.onnx"}, ["path"]),
        ({"path": "my model.onnx"}, ["my model.onnx", "'my model'", "letters", "--name"]),
        ({"path": "x" * 65 + ".onnx"}, ["--name"]),
        ({"path": 1}, ["path"]),
        ({"buckets": []}, ["'btc'", "ascend", "[] came"]),
        ({"buckets": [2, 1]}, ["'btc'", "ascend", "[2, 1] came"]),
        ({"buckets": [1, 1]}, ["ascend"]),
        ({"buckets": [0, 1]}, ["buckets"]),
        ({"buckets": [10**12]}, ["65536", "buckets"]),
        ({"buckets": list(range(1, BUCKETS_MAX + 2))}, ["'btc'", f"{BUCKETS_MAX + 1} buckets", f"{BUCKETS_MAX} is"]),
        ({"shapes": {"x": ["N", "N"]}}, ["'btc'", "'x'", "more than one batch axis"]),
        ({"shapes": {"x": ["M", 3]}}, ["shapes"]),
        ({"shapes": {"x": [0]}}, ["shapes"]),
        ({"shapes": {"x": [-1]}}, ["shapes"]),
        ({"executor": "process"}, ["process", "executor"]),
        ({"non_finite": "drop"}, ["drop", "non_finite"]),
        ({"queue_max": 0}, ["queue_max"]),
        *(({"golden": name}, ["names a file beside the model", "golden"]) for name in ("", ".", "..", "a/b")),
        ({"precision": "float16"}, ["unknown field `precision`", "there are path, name, version"]),
    ],
    ids=str,
)
def test_every_rule_of_a_model_too(values: dict[str, Any], says: list[str]) -> None:
    line = refused(lambda: make_config({"models": [MODEL | values]}))
    assert [text for text in says if text not in line] == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"port = ", "not TOML"),
        (b"port = 1\nport = 2", "not TOML"),
        (b"\xff\xfe", "not TOML"),
        (b"port = " + b"[" * 5000 + b"]" * 5000, "not TOML"),
        (b"port = " + b"1" * 5000, "not TOML"),
        (b"port = 0x" + b"f" * 5000, "a number of thousands of digits came"),
        (b"models = 3", "$.models"),
        (b"[models]\npath = 'a.onnx'", "$.models"),
        (b"models = ['a.onnx']", "$.models[0]"),
        (b"[[models]]\npath = 3", "$.models[0].path"),
        (b"[[models]]\npath = 'a.onnx'\nshapes.x = 'N,M'", "the shape of 'x': expected whole numbers"),
        (b"prot = 7070\n[[models]]\npath = 'a.onnx'", "unknown field `prot`"),
    ],
)
def test_a_broken_file_is_one_line(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "tickpath.toml"
    path.write_bytes(content)
    line = refused(lambda: make_config(read_config(path), str(path)))
    assert line.startswith(f"{path}: ")
    assert says in line


def test_a_shape_may_be_typed_as_on_the_command_line(tmp_path: Path) -> None:
    typed = {"a": "N,100,40", "b": "3", "c": "", "d": ["N", 2]}
    path = tmp_path / "tickpath.toml"
    path.write_text(
        "[[models]]\npath = 'a.onnx'\n[models.shapes]\n" + "".join(f"{k} = {v!r}\n" for k, v in typed.items())
    )
    (model,) = make_config(read_config(path)).models
    assert model.shapes == {"a": ("N", 100, 40), "b": (3,), "c": (), "d": ("N", 2)}


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert (
        refused(lambda: read_config(tmp_path / "none.toml")) == f"{tmp_path / 'none.toml'}: No such file or directory"
    )
    assert "directory" in refused(lambda: read_config(tmp_path))


def refused(make: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as error:
        make()
    line = str(error.value)
    assert line
    assert "\n" not in line
    return line


def test_hours_that_would_never_be_quiet_are_refused() -> None:
    with pytest.raises(ConfigError, match="12:00-12:00 ends as it begins"):
        make_config({"models": [{"path": "m.onnx"}], "quiet_hours": ["09:30-16:00", "12:00-12:00"]})
