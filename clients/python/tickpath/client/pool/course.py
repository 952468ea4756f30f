"""One request's way over the servers of a pool. Pure: time comes in as `now_ns`, what happened as calls.

Rules
- A request has one outcome: the first answer, or one error. When it is `over`, what is still asked is taken back.
- An Infer leaves nothing behind on a server, so asking again changes nothing but the load. It is asked again elsewhere
  after these, while its time lasts:
    the connection was lost before an answer (ConnectionLostError), or what came was not the protocol (ProtocolError);
    there was no connection (ConnectError): nothing was asked;
    NOT_READY and UNKNOWN_MODEL: each server may say so once;
    OVERLOADED: once; if the next server says so too, all have enough to do.
- Every other refusal stands, since another server would say the same (BAD_*), is as late (DEADLINE), or has run the
  model (ENGINE_FAILED, INTERNAL).
- A request under which LOST_MAX connections ended is not asked again: it may be what ends them.
- A server that refused is not asked again; one that was lost is, once it is back.
- While another server is asked for the same (a hedge), an error waits for that one's answer. SUPERSEDED alone does not:
  who asked has a newer request on its way.
"""

from collections.abc import Iterable
from typing import Final

from tickpath.client.errors import (
    ConnectError,
    ConnectionLostError,
    NotReadyError,
    OverloadedError,
    ProtocolError,
    SupersededError,
    TickpathError,
    UnknownModelError,
)
from tickpath.client.pool.hedging import Hedging
from tickpath.client.pool.servers import NEVER_NS, Server, Servers

# One for a server that dies, one for the next in a rolling restart, and one more: then it is hardly chance.
LOST_MAX: Final = 3
OVERLOADED_MAX: Final = 2


class Course:
    """Where one request is asked. `next` says whom to ask; `failed` and `answered` say what came."""

    __slots__ = (
        "_asked",
        "_began_ns",
        "_hedge_at_ns",
        "_hedging",
        "_key",
        "_lost",
        "_overloaded",
        "_refused_by",
        "_servers",
        "_stands",
        "error",
        "over",
    )

    def __init__(self, servers: Servers, hedging: Hedging, key: str | None) -> None:
        self.over = False
        self.error: TickpathError | None = None
        """The last error; what to raise, if it is `over` without an answer."""
        self._servers = servers
        self._hedging = hedging
        self._key = key
        self._asked: dict[Server, int] = {}
        self._refused_by: set[Server] = set()
        self._began_ns = 0
        self._hedge_at_ns = NEVER_NS
        self._lost = 0
        self._overloaded = 0
        self._stands = False

    @property
    def asked(self) -> Iterable[Server]:
        """Who has not answered yet."""
        return self._asked

    @property
    def wake_ns(self) -> int:
        """When to call `next` again, should nothing happen before."""
        return self._hedge_at_ns if self._asked else NEVER_NS

    def spent_ns(self, now_ns: int) -> int:
        """Since the first server was asked."""
        return now_ns - self._began_ns

    def next(self, now_ns: int) -> Server | None:
        """The server to ask now; it then counts as asked. None: wait for what is asked, or for a server to be ready."""
        server: Server | None
        if self._asked:
            server = self._hedge(now_ns)
        else:
            server = None if self.over else self._servers.choose(now_ns, self._key, self._refused_by)
        if server is None:
            return None
        if not self._began_ns:
            self._began_ns = now_ns
            self._hedging.sent()
            if self._hedging.after_ns is not None:
                self._hedge_at_ns = now_ns + self._hedging.after_ns
        self._asked[server] = now_ns
        server.in_flight += 1
        return server

    def answered(self, server: Server, now_ns: int) -> None:
        """The answer has come; whoever else is asked is not waited for any longer."""
        server.heard(now_ns)
        self._hedging.answered(now_ns - self._began_ns)
        self.drop(now_ns)

    def failed(self, server: Server, error: TickpathError, now_ns: int) -> None:
        """This server gave no answer, for this reason."""
        del self._asked[server]
        server.in_flight -= 1
        self.error = error
        if isinstance(error, ConnectionLostError | ProtocolError):
            self._lost += 1
            self._stands |= self._lost >= LOST_MAX
        elif isinstance(error, NotReadyError | UnknownModelError | OverloadedError):
            self._refused_by.add(server)
            self._overloaded += isinstance(error, OverloadedError)
            self._stands |= len(self._refused_by) == len(self._servers.all) or self._overloaded >= OVERLOADED_MAX
        elif not isinstance(error, ConnectError):
            self._stands = True
        if isinstance(error, SupersededError) or (self._stands and not self._asked):
            self.drop(now_ns)

    def give_up(self, error: TickpathError, now_ns: int) -> None:
        """Its time is over. What went wrong before tells more than that."""
        self.error = self.error or error
        self.drop(now_ns)

    def drop(self, now_ns: int) -> None:
        """Nobody waits any more. What is asked took at least as long as it was waited for."""
        self.over = True
        for server, sent_ns in self._asked.items():
            server.in_flight -= 1
            server.took(now_ns - sent_ns, now_ns)
        self._asked.clear()
        self._hedge_at_ns = NEVER_NS

    def _hedge(self, now_ns: int) -> Server | None:
        if now_ns < self._hedge_at_ns or self._stands:
            return None
        self._hedge_at_ns = NEVER_NS
        server = self._servers.choose(now_ns, self._key, {*self._refused_by, *self._asked})
        return server if server is not None and self._hedging.take() else None
