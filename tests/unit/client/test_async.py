"""What only AsyncClient has: many tasks on one connection, cancellation, and two event loops."""

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.unit.client.callers import LOOPS, LoopThread
from tests.unit.client.scripted import WIDE, ScriptedServer, Session, echoed, one_echo

from tickpath.client import AsyncClient, ConnectError, ConnectionLostError, OverloadedError, Prediction
from tickpath.wire import Cancel, Infer, Limits, Ping, Pong

MakeServer = Callable[..., ScriptedServer]

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> Iterator[LoopThread]:
    thread = LoopThread(LOOPS[request.param])
    yield thread
    thread.stop()


def test_many_tasks_share_one_connection(loop: LoopThread, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        # All are asked before any is answered, and the answers come back to front, with a collection in between:
        # nothing that is waited for is held by the collector's grace.
        infers = [session.receive(Infer) for _ in range(8)]
        gc.collect()
        session.send(*[echoed(infer) for infer in reversed(infers)])
        session.expect_end()

    async def work(address: Any) -> list[Prediction]:
        async with AsyncClient(address) as client:
            return await asyncio.gather(*[client.infer("echo", X + number) for number in range(8)])

    with make_server(script) as server:
        predictions = loop.run(work(server.address))
    for number, prediction in enumerate(predictions):
        np.testing.assert_array_equal(prediction["y"], X + number)


def test_tasks_that_find_no_connection_open_one_together(loop: LoopThread, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        for _ in range(5):
            session.echo(session.receive(Infer))
        session.expect_end()

    async def work(address: Any) -> None:
        client = AsyncClient(address)
        await asyncio.gather(*[client.infer("echo", X) for _ in range(5)])
        await client.close()

    with make_server(script) as server:
        loop.run(work(server.address))


def test_a_cancelled_task_takes_its_request_back(loop: LoopThread, make_server: MakeServer) -> None:
    asked = threading.Event()

    def script(session: Session) -> None:
        session.welcome()
        infer = session.receive(Infer)
        asked.set()
        assert session.receive(Cancel).id == infer.id
        second = session.receive(Infer)
        session.send(echoed(infer), echoed(second))
        session.expect_end()

    async def work(address: Any) -> Prediction:
        async with AsyncClient(address) as client:
            task = asyncio.create_task(client.infer("echo", X))
            await asyncio.to_thread(asked.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await client.infer("echo", X + 1)

    with make_server(script) as server:
        np.testing.assert_array_equal(loop.run(work(server.address))["y"], X + 1)


def test_one_request_too_many_is_refused_at_once(loop: LoopThread, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome(limits=Limits(1000, 2, 16, 1))
        infers = [session.receive(Infer) for _ in range(2)]
        session.send(*map(echoed, infers))
        session.expect_end()

    async def work(address: Any) -> list[Prediction | BaseException]:
        async with AsyncClient(address) as client:
            calls = [client.infer("echo", X) for _ in range(3)]
            return await asyncio.gather(*calls, return_exceptions=True)

    with make_server(script) as server:
        outcomes = loop.run(work(server.address))
    assert [type(outcome) for outcome in outcomes] == [Prediction, Prediction, OverloadedError]


def test_all_in_flight_are_lost_together_each_with_its_own_exception(loop: LoopThread, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        for _ in range(3):
            session.receive(Infer)

    async def work(address: Any) -> list[Prediction | BaseException]:
        async with AsyncClient(address) as client:
            calls = [client.infer("echo", X) for _ in range(3)]
            return await asyncio.gather(*calls, return_exceptions=True)

    with make_server(script) as server:
        outcomes = loop.run(work(server.address))
    assert [type(outcome) for outcome in outcomes] == [ConnectionLostError] * 3
    assert len(set(map(id, outcomes))) == 3


def test_close_ends_what_is_in_flight(loop: LoopThread, make_server: MakeServer) -> None:
    asked = threading.Event()

    def script(session: Session) -> None:
        session.welcome()
        session.receive(Infer)
        asked.set()
        session.expect_end()

    async def work(address: Any) -> None:
        client = AsyncClient(address)
        task = asyncio.create_task(client.infer("echo", X))
        await asyncio.to_thread(asked.wait)
        await client.close()
        with pytest.raises(ConnectionLostError, match="this client was closed"):
            await task
        with pytest.raises(ConnectError):
            await client.ping()

    with make_server(script) as server:
        loop.run(work(server.address))


def test_a_large_array_arrives_whole_and_as_it_was(loop: LoopThread, make_server: MakeServer) -> None:
    """What the socket can't take at once is sent later: whole, and as the array was when it was asked."""
    changed = threading.Event()

    def script(session: Session) -> None:
        session.welcome(WIDE)
        changed.wait()
        session.echo(session.receive(Infer))
        session.expect_end()

    async def work(address: Any, x: np.ndarray[Any, Any]) -> Prediction:
        async with AsyncClient(address) as client:
            task = asyncio.create_task(client.infer("wide", x.transpose(0, 2, 1)))
            await asyncio.sleep(0)
            x[...] = 0
            changed.set()
            return await task

    x = np.random.default_rng(2).random((1, 1024, 2048), np.float32)
    expected = x.transpose(0, 2, 1).copy()
    with make_server(script) as server:
        np.testing.assert_array_equal(loop.run(work(server.address, x))["y"], expected)


def test_the_end_of_an_idle_connection_costs_no_request(loop: LoopThread, make_server: MakeServer) -> None:
    def end(session: Session) -> None:
        session.welcome()

    async def work(address: Any) -> None:
        async with AsyncClient(address) as client:
            await asyncio.wait([connection.closed for connection in client._connections])
            await client.infer("echo", X)

    with make_server(end, one_echo) as server:
        loop.run(work(server.address))


def test_small_requests_are_not_held_back(loop: LoopThread) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.expect_end()

    async def work(address: Any) -> int:
        async with AsyncClient(address) as client:
            [connection] = client._connections
            made: socket.socket = connection._transport.get_extra_info("socket")
            return made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    with ScriptedServer(None, script) as server:
        assert loop.run(work(server.address)) != 0


def test_another_loop_is_refused(loop: LoopThread, make_server: MakeServer) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.send(Pong(session.receive(Ping).id, 1))
        session.expect_end()

    with make_server(script) as server:
        client = AsyncClient(server.address)
        loop.run(client.ping())
        with pytest.raises(RuntimeError, match="another event loop"):
            asyncio.run(client.ping())
        loop.run(client.close())
