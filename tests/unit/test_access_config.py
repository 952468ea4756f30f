"""What the configuration may say of clients, TLS and addresses, and how it refuses the rest."""

from typing import Any, Final

import pytest

from tickpath.server.access_config import CLIENTS_MAX, ClientConfig, is_loopback
from tickpath.server.config import ConfigError, make_config

SECRET: Final = "correct-horse-battery-staple"
HASH: Final = "0" * 64
DESK: Final[dict[str, Any]] = {"name": "desk", "token_file": "desk.token"}
BASE: Final[dict[str, Any]] = {"models": [{"path": "btc.onnx"}]}
TLS: Final = {"certificate": "c.pem", "key": "k.pem"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"clients": [{"name": "desk"}]}, ["'desk' can't be known", "token_file"]),
        ({"clients": [DESK, DESK]}, ["two clients are named 'desk'"]),
        ({"clients": [DESK | {"name": "a b"}]}, ["letters, digits", "$.clients[0].name"]),
        ({"clients": [{"name": "desk", "certificate": "CN:desk"}]}, ["client_ca"]),
        ({"clients": [{"name": "desk", "certificate": "desk"}], "tls": TLS}, ["CN:desk-7", "URI:"]),
        ({"clients": [DESK | {"rate_max": 0}]}, ["rate_max"]),
        ({"clients": [DESK | {"rate_max": 5e-324}]}, ["rate_max", "1e-06"]),
        ({"clients": [DESK | {"rate_burst": 3}]}, ["rate_burst is for rate_max"]),
        ({"clients": [DESK | {"sessions_max": 0}]}, ["sessions_max"]),
        ({"clients": [DESK | {"modles": ["btc"]}]}, ["unknown field `modles`", "there are name, token_file"]),
        ({"clients": [DESK | {"name": f"d{n}"} for n in range(CLIENTS_MAX + 1)]}, [f"one server takes {CLIENTS_MAX}"]),
        ({"tls": {"certificate": "c.pem"}}, ["key", "$.tls"]),
        ({"tls": TLS | {"client_certificates": "optional"}}, ["client_ca", "[[clients]]"]),
        ({"tls": TLS | {"client_certificates": "maybe"}}, ["'required', 'optional'"]),
        ({"tls": TLS, "oip_port": 0}, ["give a uds"]),
        ({"tls": TLS | {"client_ca": "ca.pem"}, "oip_grpc_port": 0, "uds": "/s"}, ["the door", "[[clients]]"]),
        ({"uds_mode": "660"}, ["0660", "$.uds_mode"]),
        ({"uds_group": "a b"}, ["group", "$.uds_group"]),
        ({"host": "0.0.0.0"}, ["host 0.0.0.0", "asked for nothing", "--insecure"]),
        ({"host": "::"}, ["host ::"]),
        ({"host": "trading.example"}, ["host trading.example"]),
        ({"host": "0.0.0.0", "tls": TLS}, ["host 0.0.0.0"]),
        ({"observer_host": "0.0.0.0"}, ["observer_host", "observer_token_file", "--insecure"]),
        ({"observer_host": "0.0.0.0", "clients": [DESK]}, ["observer_host"]),
        ({"oip_host": "0.0.0.0", "oip_port": 0}, ["oip_host"]),
    ],
)
def test_what_can_not_be_is_refused_in_words(values: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        make_config(BASE | values)
    for words in says:
        assert words in str(refused.value)


@pytest.mark.parametrize(
    "values",
    [
        {"host": "127.0.0.5"},
        {"host": "localhost"},
        {"host": "::1", "observer_host": "::1"},
        {"host": "0.0.0.0", "insecure": True},
        {"host": "0.0.0.0", "clients": [DESK]},
        {"host": "0.0.0.0", "tls": TLS | {"client_ca": "ca.pem"}},
        {"host": "0.0.0.0", "port": None, "uds": "/s"},
        {"observer_host": "0.0.0.0", "observer_token_file": "scrapers"},
        {"observer_host": "0.0.0.0", "observer_port": None},
        {"oip_host": "0.0.0.0", "oip_port": 0, "clients": [DESK]},
        {"oip_host": "0.0.0.0"},
    ],
)
def test_who_asks_or_says_so_may_listen_anywhere(values: dict[str, Any]) -> None:
    make_config(BASE | values)


@pytest.mark.parametrize(
    "client",
    [
        {"name": "desk", "token_sha256": [SECRET]},
        {"name": "desk", "token_sha256": SECRET},
        {"name": "desk", "token": SECRET},
        {"name": "desk", "token_file": {"it": SECRET}},
        {"name": "desk", "token_sha256": [HASH, SECRET]},
    ],
)
def test_a_secret_in_the_wrong_place_is_not_said_again(client: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        make_config(BASE | {"clients": [client]})
    assert "token" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_client_shows_its_name_alone() -> None:
    config = make_config(BASE | {"clients": [DESK | {"token_sha256": ["ab" * 32]}]})
    assert "desk" in repr(config)
    assert "abab" not in repr(config)
    assert repr(ClientConfig(name="x")) == "ClientConfig('x')"


def test_only_this_machine_is_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.255.0.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "fe80::1%eth0", "localhost.example", "")))
