"""docs/CONFIG.md names every key of the configuration with its default, and no others; the examples are taken."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tickpath.server.access_config import ClientConfig, TlsConfig
from tickpath.server.config import FeedConfig, ModelConfig, ServerConfig, make_config
from tickpath.server.config_file import read_config
from tickpath.server.record_config import RecordConfig
from tickpath.server.repository import VersionChoice
from tickpath.server.trace_config import TraceConfig

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "docs" / "CONFIG.md").read_text("utf-8")
SECTIONS: Final = {
    "The server": ServerConfig,
    "Traces": TraceConfig,
    "Recording": RecordConfig,
    "A model": ModelConfig,
    "Feeds": FeedConfig,
    "Clients": ClientConfig,
    "TLS": TlsConfig,
    "A repository": VersionChoice,
}
ROW: Final = re.compile(r"^\| `(\w+)` +\| (.+?) +\| .+\|$", re.MULTILINE)


@pytest.mark.parametrize(("heading", "kind"), SECTIONS.items())
def test_every_key_and_its_default(heading: str, kind: type[msgspec.Struct]) -> None:
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    told = [(key, default_told(text)) for key, text in ROW.findall(section)]
    assert told == [(field.encode_name, default_of(field)) for field in msgspec.structs.fields(kind)]


def default_told(text: str) -> object:
    words = {"must be given": msgspec.NODEFAULT, "none": None}
    return words[text] if text in words else tomllib.loads(f"x = {text.strip('`')}")["x"]


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return list(default) if isinstance(default, tuple) else default  # as TOML writes it


@pytest.mark.parametrize("file", ["docs/CONFIG.md", "README.md"])
def test_the_example_is_a_configuration(file: str, tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(.+?)^```$", (ROOT / file).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    path = tmp_path / "tickpath.toml"
    path.write_text(example)
    btc, eth = make_config(read_config(path)).models
    assert btc.shapes == {"window": ("N", 100, 40)}
    assert (btc.served_name, eth.served_name) == ("btc", "eth")
