"""Who a client is, what it may ask and how much: the policies alone."""

import random
from typing import Any, Final

import pytest

from tickpath.server.access_config import ClientConfig
from tickpath.server.identity import Keyring, Known, Stranger, certificate_name, certificate_names
from tickpath.server.quota import Account, TokenBucket
from tickpath.server.rights import Rights, refuse_model
from tickpath.wire import Code
from tickpath.wire.tokens import digest_of

DESK: Final = ClientConfig(name="desk", token_file="f")
LAB: Final = ClientConfig(name="lab", certificate="URI:spiffe://lab")
BOTH: Final = ClientConfig(name="both", token_file="f", certificate="CN:both")
RING: Final = Keyring([DESK, LAB, BOTH], {"desk": (digest_of("d1"), digest_of("d2")), "both": (digest_of("b"),)})
SECOND_NS: Final = 1_000_000_000


@pytest.mark.parametrize(
    ("token", "certificate", "name"),
    [
        ("d1", set(), "desk"),
        ("d2", {"CN:whoever"}, "desk"),
        ("", {"CN:x", "URI:spiffe://lab"}, "lab"),
        ("b", {"CN:both"}, "both"),
        ("d1", {"URI:spiffe://lab"}, "desk"),  # a token says who it is, whatever its machine's certificate
        ("", set(), None),
        ("d3", set(), None),
        ("D1", set(), None),
        ("d3", {"URI:spiffe://lab"}, None),  # a wrong token is never passed over
        ("", {"CN:spiffe://lab"}, None),
        ("", {"CN:both"}, None),
        ("b", set(), None),
        ("b", {"CN:other"}, None),
        ("", {"CN:both", "URI:spiffe://lab"}, None),
        ("\ud800", set(), None),
    ],
)
def test_who_it_is(token: str, certificate: set[str], name: str | None) -> None:
    found = RING.identify(token, certificate)
    assert (found.name if isinstance(found, Known) else None) == name
    if isinstance(found, Stranger):
        assert found.why
        assert not token or token not in found.why.split()


def test_without_clients_the_certificate_is_the_client() -> None:
    ring = Keyring([], {})
    assert ring.identify("", {"CN:desk", "DNS:desk.example"}) == Known("desk.example")
    found = ring.identify("any", set())
    assert isinstance(found, Stranger)
    assert "TLS port" in found.why


def test_a_withdrawn_token_is_known_no_more() -> None:
    old, new = RING.identify("d1", set()), RING.identify("d2", set())
    later = Keyring([DESK, LAB], {"desk": (digest_of("d2"),)})
    assert isinstance(old, Known)
    assert isinstance(new, Known)
    assert (later.still_knows(old), later.still_knows(new), later.still_knows(Known("lab"))) == (False, True, True)
    moved = Keyring([DESK, LAB], {"lab": (digest_of("d1"),), "desk": (digest_of("d2"),)})
    assert not moved.still_knows(old)
    assert "digest" not in repr(old)


def test_the_names_of_a_certificate() -> None:
    peercert: dict[str, Any] = {
        "subject": ((("countryName", "CH"),), (("commonName", "desk"),)),
        "subjectAltName": (("DNS", "d.example"), ("IP Address", "10.0.0.1"), ("DirName", "x"), ("email", "a@b")),
    }
    names = certificate_names(peercert)
    assert names == {"CN:desk", "DNS:d.example", "IP:10.0.0.1", "email:a@b"}
    assert certificate_name(names) == "d.example"
    assert certificate_names(None) == certificate_names({}) == frozenset()
    assert certificate_name(frozenset()) == ""


def test_rights() -> None:
    some = Rights.of(ClientConfig(name="x", models=("btc",)))
    assert (some.may_ask("btc"), some.may_ask("eth"), some.admin) == (True, False, False)
    assert not Rights.of(ClientConfig(name="x", models=())).may_ask("btc")
    assert Rights.of(ClientConfig(name="x", admin=True)) == Rights(None, True)
    refusal = refuse_model("desk", 7)
    assert refusal.code is Code.FORBIDDEN
    assert "handle 7" in refusal.message


def test_a_bucket_lets_its_burst_through_then_its_rate() -> None:
    bucket = TokenBucket(rate=10, burst=3)
    start = 5 * SECOND_NS
    assert [bucket.take(start) for _ in range(5)] == [True, True, True, False, False]
    assert bucket.wait_ns(start) == SECOND_NS // 10
    assert not bucket.take(start + SECOND_NS // 10 - 1_000)
    assert bucket.take(start + SECOND_NS // 10)
    assert not bucket.take(start + SECOND_NS // 10)
    later = start + 3600 * SECOND_NS  # a long pause saves up the burst and no more
    assert [bucket.take(later) for _ in range(5)] == [True, True, True, False, False]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_a_bucket_never_lets_more_through_and_never_much_less(seed: int) -> None:
    chance = random.Random(seed)
    rate, burst = chance.choice([0.5, 7.3, 999.0, 1e5]), chance.randint(1, 50)
    bucket, now, passed = TokenBucket(rate, burst), chance.randrange(2**62), 0
    start = now
    for _ in range(3000):
        now += round(chance.expovariate(rate * 2) * 1e9)
        passed += bucket.take(now)
        assert passed <= burst + (now - start) * rate / 1e9 + 1e-3
    assert passed >= min(3000, (now - start) * rate / 1e9 * 0.5)


def test_an_account_refuses_at_its_limits_and_says_which() -> None:
    account = Account(ClientConfig(name="desk", sessions_max=1, in_flight_max=2, rate_max=10))
    assert (account.refuse_session(), account.refuse_in_flight(), account.refuse_rate(0)) == (None, None, None)
    account.sessions, account.in_flight = 1, 2
    for refusal, words in (
        (account.refuse_session(), "1 sessions open"),
        (account.refuse_in_flight(), "2 requests"),
        (account.refuse_rate(1), "10 times a second"),
    ):
        assert refusal is not None
        assert refusal.code is Code.OVERLOADED
        assert words in refusal.message
    free = Account(ClientConfig(name="free", token_file="f"), sessions=9999, in_flight=9999)
    assert (free.refuse_session(), free.refuse_in_flight(), free.refuse_rate(0)) == (None, None, None)
