"""Exactly one outcome for each request, whatever befalls the servers. A failure names its seed."""

from collections import Counter
from collections.abc import Callable

import pytest
from tests.sim.pool.simulation import Trouble, World

from tickpath.client import ConnectionLostError, Hedge, Prediction, RefusedError
from tickpath.client.pool.call import Call
from tickpath.client.pool.course import LOST_MAX
from tickpath.wire import Code

REQUESTS = 200
HEDGE = Hedge(percentile=90, share_max=0.1)
TROUBLES: dict[str, Callable[[], Trouble]] = {
    "none": Trouble,
    "deaths": lambda: Trouble(dies=0.05),
    "stalls": lambda: Trouble(slow=0.05),
    "refusals": lambda: Trouble(refuses=dict.fromkeys(Code, 0.02)),
    "all": lambda: Trouble(dies=0.05, slow=0.05, refuses={Code.NOT_READY: 0.05, Code.OVERLOADED: 0.05}),
}


@pytest.mark.parametrize("hedge", [None, HEDGE], ids=["alone", "hedged"])
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("seed", range(6))
def test_each_request_has_one_outcome(seed: int, trouble: str, hedge: Hedge | None) -> None:
    world = World(seed, server_count=1 + seed % 4, trouble=TROUBLES[trouble](), hedge=hedge)
    world.run(REQUESTS)
    assert len(world.requests) == REQUESTS
    for asked in world.requests:
        [outcome] = asked.outcomes
        assert asked.call.requests == {}
        assert asked.answers == isinstance(outcome, Prediction)
        if isinstance(outcome, Prediction):
            assert int(outcome.version) in [server.place for server in asked.sent_to]
    assert [server.in_flight for server in world.servers.all] == [0] * len(world.servers.all)
    assert world.hedges <= (0 if hedge is None else hedge.share_max * REQUESTS)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_lost_while_one_server_lives(seed: int) -> None:
    world = World(seed, server_count=3, trouble=Trouble(dies=0.02, spare_one=True), hedge=HEDGE)
    world.run(REQUESTS)
    for asked in world.requests:
        [outcome] = asked.outcomes
        if isinstance(outcome, ConnectionLostError):
            assert len(asked.sent_to) >= LOST_MAX, "it was given up before it had to be"
        else:
            assert isinstance(outcome, Prediction), f"{outcome!r}"
    lost = sum(isinstance(asked.outcomes[0], ConnectionLostError) for asked in world.requests)
    assert lost <= 1, "three deaths under one request are rare"
    assert any(len(asked.sent_to) > 1 for asked in world.requests), "nothing died: this proves nothing"


@pytest.mark.parametrize("seed", range(4))
def test_hedging_cuts_the_tail_within_its_budget(seed: int) -> None:
    """Of the requests that would have waited for a stalled server, most are answered by another."""
    waited = {}
    for name, hedge in {"alone": None, "hedged": Hedge(percentile=95, share_max=0.1)}.items():
        world = World(seed, server_count=2, trouble=Trouble(slow=0.02), hedge=hedge)
        world.run(1000)
        waited[name] = sum(not isinstance(asked.outcomes[0], Prediction) for asked in world.requests)
        assert world.hedges <= 100
    assert world.answers_dropped > 0, "no late answer came: this proves nothing"
    assert waited["hedged"] < waited["alone"]


def test_a_second_answer_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary: a call that goes on taking what comes takes two answers somewhere."""

    def collect(self: Call[World], now_ns: int) -> None:
        for server, (_, request) in list(self.requests.items()):
            if request.done:
                del self.requests[server]
                self.course.over = False
                if server in self.course.asked:
                    self._take(server, request, now_ns)

    monkeypatch.setattr(Call, "collect", collect)
    world = World(3, 2, Trouble(slow=0.3), Hedge(percentile=50, share_max=1))
    world.run(REQUESTS)
    assert max(asked.answers for asked in world.requests) >= 2


REFUSALS = {
    Code.NOT_READY: 3,
    Code.UNKNOWN_MODEL: 3,
    Code.OVERLOADED: 2,
    Code.DEADLINE: 1,
    Code.BAD_SHAPE: 1,
    Code.BAD_VALUE: 1,
    Code.BAD_DTYPE: 1,
    Code.SUPERSEDED: 1,
    Code.FEED_GAP: 1,
    Code.ENGINE_FAILED: 1,
    Code.INTERNAL: 1,
    Code.FORBIDDEN: 1,
    Code.CANCELLED: 1,
}


@pytest.mark.parametrize("code", REFUSALS, ids=lambda code: code.name)
def test_what_is_asked_again(code: Code) -> None:
    """All servers refuse: so often a request is sent until the refusal stands."""
    world = World(1, 3, Trouble(refuses={code: 1.0}), None)
    world.run(5)
    for asked in world.requests:
        [outcome] = asked.outcomes
        assert isinstance(outcome, RefusedError)
        assert outcome.code is code
        assert len(asked.sent_to) == len(set(asked.sent_to)) == REFUSALS[code]


def test_a_request_that_ends_every_connection_is_given_up() -> None:
    world = World(1, 5, Trouble(), None)
    world.ask(0)
    [asked] = world.requests
    while not asked.outcomes:
        world.advance(asked)
        for server in list(asked.call.requests):
            world.die(server)
    assert isinstance(asked.outcomes[0], ConnectionLostError)
    assert len(asked.sent_to) == LOST_MAX


@pytest.mark.parametrize("seed", range(3))
def test_a_key_stays_where_it_is_while_its_server_lives(seed: int) -> None:
    world = World(seed, 5, Trouble(), None)
    servers = world.servers
    keys = [f"key {number}" for number in range(1000)]
    before = {key: servers.choose(1, key, ()) for key in keys}
    share = Counter(before.values())
    assert len(share) == 5
    assert max(share.values()) < 1.5 * min(share.values())
    gone = servers.all[2]
    gone.lost(1)
    after = {key: servers.choose(1, key, ()) for key in keys}
    assert all(after[key] is before[key] for key in keys if before[key] is not gone)
    assert gone not in after.values()
    gone.opened(2)
    assert {key: servers.choose(1, key, ()) for key in keys} == before
