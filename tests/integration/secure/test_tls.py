"""TLS on the TCP port, with real certificates: who gets through, who does not, and how that ends."""

import asyncio
import random
import shutil
import socket
import ssl
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import uvloop
from cryptography.hazmat.primitives import serialization
from tests.certificates import Authority
from tests.integration.hostile.arena import scrape
from tests.onnx_models import one_node, save
from tests.secured import TOKENS, Secured, secured
from tests.serving import write_config, write_zoo
from tests.waiting import wait_until

from tickpath.client import AsyncClient, Client, ConnectError, RefusedError, Tls, UnauthenticatedError
from tickpath.wire import PROTOCOL_VERSION, Code, Failure, FrameDecoder, Hello, decode_server_message, encode_frame
from tickpath.wire.tokens import digest_of

ROW: Final = np.zeros((1, 64), np.float32)
WIDE: Final = 64 * 1024


def context(authority: Authority) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(authority.path)
    return made


def shake_hands(shared: Secured, made: ssl.SSLContext) -> ssl.SSLSocket:
    return made.wrap_socket(shared.server.connect(), server_hostname="127.0.0.1")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_new_versions_of_tls_get_through(shared: Secured, version: ssl.TLSVersion) -> None:
    made = context(shared.authority)
    made.minimum_version = made.maximum_version = version
    with shake_hands(shared, made) as connection:
        assert connection.version() == {771: "TLSv1.2", 772: "TLSv1.3"}[version.value]
        assert connection.compression() is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_of_tls_do_not(shared: Secured, version: ssl.TLSVersion) -> None:
    made = context(shared.authority)
    made.set_ciphers("ALL:@SECLEVEL=0")  # else our own side would refuse first
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made.minimum_version = made.maximum_version = version
    with pytest.raises((ssl.SSLError, ConnectionError)) as refused:
        shake_hands(shared, made)
    assert "NO_PROTOCOLS_AVAILABLE" not in str(refused.value)


def test_a_client_trusts_its_authority_and_the_right_name_alone(shared: Secured, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    for tls, says in (
        (Tls(ca=stranger.path), "certificate is refused"),
        (Tls(), "certificate is refused"),
        (Tls(ca=shared.authority.path, server_name="other.example"), "certificate is refused: Hostname mismatch"),
    ):
        with pytest.raises(ConnectError, match=says):
            shared.client("desk", tls=tls).connect()
    with shared.client("desk", tls=Tls(ca=shared.authority.path, server_name="localhost")) as client:
        client.ping()


def test_plain_bytes_to_tls_and_the_reverse_end_clearly_and_soon(shared: Secured, tmp_path: Path) -> None:
    plain = shared.server.address.removeprefix("tls://")
    with pytest.raises(ConnectError, match=f"plain, not tls://{plain}"):
        Client(plain, token=TOKENS["desk"], timeout_s=30).connect()
    with secured(tmp_path, write_zoo(tmp_path, "mlp"), tls=None) as server:
        with pytest.raises(ConnectError, match="does not speak TLS there: leave tls:// out"):
            Client(f"tls://{server.server.address}", token=TOKENS["desk"], timeout_s=30).connect()
        with Client(server.server.address, token=TOKENS["desk"]) as client:
            client.ping()


async def _ask_async(shared: Secured) -> int:
    async with AsyncClient(shared.server.address, token=TOKENS["desk"], tls=shared.tls, timeout_s=60) as client:
        answers = await asyncio.gather(*(client.infer("mlp", ROW) for _ in range(16)))
        with pytest.raises(UnauthenticatedError):
            await AsyncClient(shared.server.address, token="wrong", tls=shared.tls).connect()
        with pytest.raises(ConnectError, match="certificate is refused"):
            await AsyncClient(shared.server.address, token=TOKENS["desk"]).connect()
        return len(answers)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_the_async_client_speaks_it_on_both_loops(shared: Secured, run: Any) -> None:
    assert run(_ask_async(shared)) == 16


def test_large_messages_both_ways_and_many_at_once(tmp_path: Path) -> None:
    """Records hold 16 KiB: what is larger comes in many, and what waits in the library is not seen by poll."""
    wide = str(save(one_node("Identity", np.float32, ["N", WIDE]), tmp_path, "wide.onnx"))
    rows = [np.full((1, WIDE), n, np.float32) for n in range(24)]
    with (
        secured(tmp_path, [{"path": wide, "buckets": [1, 16]}]) as server,
        server.client("desk", timeout_s=60) as client,
    ):
        assert client.infer("wide", np.concatenate(rows[:16])).outputs["y"][15, 0] == 15
        answers = client.infer_many("wide", rows, in_flight=24)
        assert [each.outputs["y"][0, -1] for each in answers if not isinstance(each, RefusedError)] == list(range(24))


def test_handshakes_that_are_not_done_are_no_sessions_and_keep_nobody_out(tmp_path: Path) -> None:
    with secured(tmp_path, write_zoo(tmp_path, "mlp"), observer_port=0, hello_s=1.5, sessions_max=4) as server:
        idle = [server.server.connect() for _ in range(200)]
        with server.client("desk", timeout_s=60) as client:
            assert client.infer("mlp", ROW).version == "1"
            assert scrape(server.server).value("tickpath_sessions") <= 4
        for connection in idle:
            connection.settimeout(60)
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""  # too slow, or made room
            connection.close()
        page = scrape(server.server)
        assert page.value("tickpath_access_refused_total", cause="handshake") >= 200
        assert "Traceback" not in server.server.log.read_text()


def test_a_handshake_cut_off_at_any_byte_harms_nobody(shared: Secured) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = context(shared.authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    data = outgoing.read()
    for cut in (0, 1, 5, 6, len(data) // 2, len(data) - 1, len(data)):
        connection = shared.server.connect()
        connection.sendall(data[:cut])
        connection.close()
    flipped = bytearray(data)
    flipped[9] ^= 0xFF
    connection = shared.server.connect()
    connection.sendall(flipped)
    connection.shutdown(socket.SHUT_WR)
    with suppress(ConnectionResetError):  # it may end before it has read all
        while connection.recv(4096):
            pass
    connection.close()
    with shared.client("desk") as client:
        client.ping()
    assert "Traceback" not in shared.server.log.read_text()


def _mutated(chance: random.Random, data: bytes) -> bytes:
    """A first flight that is no longer one, or not only."""
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.randint(1, 4000))
    if kind == 1:  # a record as long as one may not be
        return b"\x16\x03\x01\xff\xff" + chance.randbytes(50)
    if kind == 2:  # data before the keys
        return data + b"\x17\x03\x03\x40\x00" + chance.randbytes(300)
    if kind == 3:
        return data + data
    changed = bytearray(data)
    for _ in range(chance.randint(1, 5)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def test_any_bytes_at_the_tls_port_harm_nobody(shared: Secured) -> None:
    """Mutated first flights, from a seed: each connection ends, and who is known is served."""
    chance = random.Random(11)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context(shared.authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    data = outgoing.read()
    for _ in range(60):
        with shared.server.connect() as connection, suppress(ConnectionError):
            connection.settimeout(60)
            connection.sendall(_mutated(chance, data))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    with shared.client("desk", timeout_s=60) as client:
        assert client.infer("mlp", ROW).version == "1"
    assert "Traceback" not in shared.server.log.read_text()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_record_with_a_flipped_bit_ends_its_session(shared: Secured, version: ssl.TLSVersion) -> None:
    made = context(shared.authority)
    made.minimum_version = made.maximum_version = version
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = made.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with shared.server.connect() as connection:
        connection.settimeout(60)
        done = False
        while not done:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(1 << 16))
        connection.sendall(outgoing.read())
        tls.write(encode_frame(Hello(PROTOCOL_VERSION, "peer", TOKENS["desk"])))
        record = bytearray(outgoing.read())
        record[-1] ^= 1
        connection.sendall(record)
        with suppress(ConnectionError):
            while connection.recv(1 << 16):
                pass
    wait_until(lambda: scrape(shared.server).value("tickpath_sessions") == 0, "the end of that session")
    assert "Traceback" not in shared.server.log.read_text()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, whose s_client asks for it, is not here")
def test_a_renegotiation_is_refused(shared: Secured) -> None:
    """Each would be a handshake that no limit sees."""
    command = ["openssl", "s_client", "-tls1_2", "-connect", shared.server.address.removeprefix("tls://")]
    done = subprocess.run(command, input=b"R\n", capture_output=True, timeout=100, check=False)
    assert b"RENEGOTIATING" in done.stdout + done.stderr, "or nothing was asked for"
    assert b"no renegotiation" in done.stderr


def test_a_certificate_says_who_comes(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    stranger = Authority(tmp_path, "stranger")
    clients = [
        {"name": "lab", "certificate": "DNS:lab.desk.example"},
        {"name": "both", "certificate": "CN:both", "token_sha256": [_sha256("a token of some length")]},
    ]
    tls = {**authority.server(), "client_ca": authority.path}

    def shown(name: str, *identities: str, by: Authority = authority, days: int = 1, cn: str | None = None) -> Tls:
        certificate, key = by.issue(name, *identities, days=days, common_name=cn)
        return Tls(ca=authority.path, certificate=certificate, key=key)

    with secured(tmp_path, write_zoo(tmp_path, "deeplob"), authority=authority, clients=clients, tls=tls) as server:
        address = server.server.address
        lab = shown("lab", "lab.desk.example")
        with Client(address, tls=lab, name="whatever") as client:
            assert client.open_feed("deeplob", "k").next_sequence == 1
        with pytest.raises(UnauthenticatedError, match="no client has this certificate"):
            Client(address, tls=shown("other", "other.desk.example")).connect()
        both = shown("both", "both.example", cn="both")
        with pytest.raises(UnauthenticatedError, match="its token is missing"):
            Client(address, tls=both).connect()
        with Client(address, tls=both, token="a token of some length") as client:
            client.ping()
        with pytest.raises(UnauthenticatedError, match="its certificate is missing"):
            Client(address, tls=lab, token="a token of some length").connect()
        for bad in (
            Tls(ca=authority.path),
            shown("foreign", "lab.desk.example", by=stranger),
            shown("ended", "lab.desk.example", days=-1),
        ):
            with pytest.raises(ConnectError):
                Client(address, tls=bad, timeout_s=20).connect()
        with pytest.raises(UnauthenticatedError):  # a Unix socket shows no certificate
            Client(server.server.uds).connect()


def test_certificates_may_be_left_to_those_who_have_them(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = {**authority.server(), "client_ca": authority.path, "client_certificates": "optional"}
    clients = [
        {"name": "lab", "certificate": "DNS:lab.desk.example"},
        {"name": "desk", "token_sha256": [_sha256(TOKENS["desk"])]},
    ]
    certificate, key = authority.issue("lab", "lab.desk.example")
    with secured(tmp_path, write_zoo(tmp_path, "mlp"), authority=authority, clients=clients, tls=tls) as server:
        address, trusted = server.server.address, Tls(ca=authority.path)
        for tls_of_client, token in (
            (trusted, TOKENS["desk"]),
            (Tls(ca=authority.path, certificate=certificate, key=key), ""),
        ):
            with Client(address, tls=tls_of_client, token=token) as client:
                client.ping()
        with pytest.raises(UnauthenticatedError, match="it has no token"):
            Client(address, tls=trusted).connect()


def _sha256(token: str) -> str:
    return digest_of(token).hex()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("ended", "certificate has expired"),
        ("foreign key", "key values mismatch"),
        ("missing", "No such file"),
        ("no PEM", "give a certificate and the key"),
        ("locked key", "has a password"),
    ],
)
def test_a_start_with_a_bad_certificate_is_refused(tmp_path: Path, fault: str, says: str) -> None:
    authority = Authority(tmp_path)
    tls = authority.server(days=-1 if fault == "ended" else 1)
    match fault:
        case "foreign key":
            tls["key"] = authority.issue("other", "localhost")[1]
        case "missing":
            tls["key"] = str(tmp_path / "none.key")
        case "no PEM":
            Path(tls["certificate"]).write_text("nothing")
        case "locked key":
            key = serialization.load_pem_private_key(Path(tls["key"]).read_bytes(), None)
            locked = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"secret"),
            )
            Path(tls["key"]).write_bytes(locked)
    config = write_config(tmp_path, write_zoo(tmp_path, "mlp"), port=0, observer_port=False, tls=tls)
    command = [sys.executable, "-m", "tickpath.cli", "serve", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, stdin=subprocess.DEVNULL)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_client_that_only_stops_sending_ends_both_ways(shared: Secured) -> None:
    """TLS, as it is spoken here, has no half-closed connection: the session ends, and says nothing odd in the log."""
    with shake_hands(shared, context(shared.authority)) as connection:
        connection.settimeout(30)
        assert connection.unwrap() is not None
    wait_until(lambda: scrape(shared.server).value("tickpath_sessions") == 0, "the end of that session")
    assert "eof_received" not in shared.server.log.read_text()


def test_a_broken_frame_over_tls_is_answered_before_the_end(shared: Secured) -> None:
    with shake_hands(shared, context(shared.authority)) as connection:
        connection.settimeout(30)
        connection.sendall(b"\x00\x00\x00\x00" + bytes(1000))
        decoder, frame = FrameDecoder(1 << 20), None
        while frame is None:
            room = decoder.get_buffer()
            decoder.received(connection.recv_into(room))
            frame = decoder.next_frame()
        failure = decode_server_message(frame)
        assert isinstance(failure, Failure)
        assert (failure.id, failure.code) == (0, Code.BAD_FRAME)
        assert connection.recv(1) == b""
