"""One transport and what is said on it, for asyncio's own loop and for uvloop.

Theory of operation
- Each request has a future, which its reply, its timer or the end of the connection sets. Nothing runs in the
  background: there are no tasks here, only the loop's own callbacks.
- A request that ends without an answer (time, cancellation) is taken back: Cancel is sent and its id forgotten.
- Frames are written as bytes: they are one-dimensional and nobody changes them while they wait to be sent.
- What waits to be sent is bounded by the server's limit of requests in flight.
"""

import asyncio
from typing import Any, TypeVar, cast

from tickpath.client.address import Address, UnixAddress
from tickpath.client.conversation import Conversation, Request
from tickpath.client.dead_peer import notice_dead_peer
from tickpath.client.deadline import Deadline
from tickpath.client.errors import TickpathError, lost, reason_of, timed_out
from tickpath.client.tls import Tls, server_name

T = TypeVar("T")


class _Pending:
    """A request on its way: who waits for it and for how long."""

    __slots__ = ("request", "timer", "waiter")

    def __init__(self, request: Request[Any], waiter: asyncio.Future[None], timer: asyncio.TimerHandle) -> None:
        self.request = request
        self.waiter = waiter
        self.timer = timer


class AioConnection(asyncio.BufferedProtocol):
    """One transport and its conversation."""

    def __init__(self, conversation: Conversation, loop: asyncio.AbstractEventLoop) -> None:
        self.conversation = conversation
        self.loop = loop
        self.open = True
        self.closed: asyncio.Future[None] = loop.create_future()
        self._pending: dict[int, _Pending] = {}
        self._transport: asyncio.Transport
        self._leaving = False

    @property
    def takes_more(self) -> bool:
        """Whether new requests may be sent here."""
        return self.open and self.conversation.goodbye is None

    async def answer(self, request: Request[T], deadline: Deadline) -> T:
        """Send, wait, and give the answer. Raises RefusedError and what else Client.infer does."""
        self.send(request, deadline)
        await self.wait_for(request)
        return request.result()

    def send(self, request: Request[Any], deadline: Deadline) -> None:
        """Never waits. On a connection that has ended the request fails at once."""
        if not self.open:
            request.fail(lost(self.conversation.address, "it ended before this request"))
            return
        timer = self.loop.call_later(deadline.left_s(), self._time_up, request, deadline)
        self._pending[request.id] = _Pending(request, self.loop.create_future(), timer)
        self._transport.write(request.frame)

    async def wait_for(self, request: Request[Any]) -> None:
        """Until the request is done. Who is cancelled here takes it back."""
        pending = self._pending.get(request.id)
        if pending is not None:
            try:
                await pending.waiter
            finally:
                self.take_back(request)

    def take_back(self, request: Request[Any]) -> None:
        """Nobody waits for it any more, if it is not done."""
        frame = self.conversation.forget(request)
        if frame is not None and self.open:
            self._transport.write(frame)
        self._wake(request)

    def leave(self) -> None:
        """Close as soon as nothing is on its way."""
        self._leaving = True
        self._close_if_idle()

    def end(self, error: TickpathError) -> None:
        """Close now: what is on its way fails with this error, and nothing more is read."""
        if self.open:
            self._transport.write(self.conversation.say_goodbye())
            self._transport.close()
        self._fail(error)

    def abort(self) -> None:
        """Close now, without sending what still waits to be sent."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.conversation.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        conversation = self.conversation
        conversation.received(nbytes)
        try:
            while (request := conversation.next_answered()) is not None:
                self._wake(request)
        except TickpathError as error:
            self._fail(error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = reason_of(exc) if isinstance(exc, OSError) else exc
        self._fail(lost(self.conversation.address, reason or "the server closed it"))
        if not self.closed.done():
            self.closed.set_result(None)

    def _fail(self, error: TickpathError) -> None:
        self.open = False
        for pending in list(self._pending.values()):
            # To each its own: an exception that is raised in several tasks would collect all their tracebacks.
            pending.request.fail(type(error)(*error.args))
            self._wake(pending.request)

    def _time_up(self, request: Request[Any], deadline: Deadline) -> None:
        frame = self.conversation.forget(request)
        if frame is not None:
            self._transport.write(frame)
        request.fail(timed_out(self.conversation.address, deadline.timeout_s))
        self._wake(request)

    def _wake(self, request: Request[Any]) -> None:
        pending = self._pending.pop(request.id, None)
        if pending is not None:
            pending.timer.cancel()
            if not pending.waiter.done():
                pending.waiter.set_result(None)
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._leaving and self.open and not self._pending:
            self._transport.close()


async def open_connection(address: Address, tls: Tls | None, conversation: Conversation) -> AioConnection:
    """Raises OSError, CredentialsError. Both loops turn TCP_NODELAY on by themselves."""
    loop = asyncio.get_running_loop()
    connection = AioConnection(conversation, loop)
    if isinstance(address, UnixAddress):
        await loop.create_unix_connection(lambda: connection, address.path)
    else:
        encrypted: dict[str, Any] = {}
        if tls is not None:
            encrypted = {"ssl": tls.context(), "server_hostname": server_name(address, tls)}
        transport, _ = await loop.create_connection(lambda: connection, address.host, address.port, **encrypted)
        notice_dead_peer(transport.get_extra_info("socket"))
    return connection
