"""How a pool ends, and what it does not share: refusals, close, cancelled tasks, forks, one caller at a time."""

import asyncio
import os
import threading
from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.client.pools import MakePool
from tests.unit.client.scripted import Address, ScriptedServer, Session

from tickpath.client import AsyncPool, ConnectError, ConnectionLostError, Pool, UnauthenticatedError
from tickpath.wire import Cancel, Code, Failure, Hello, Infer

X = np.arange(3, dtype=np.float32).reshape(1, 3)


def echo_all(session: Session) -> None:
    """Answers each request until the client goes."""
    session.welcome()
    while isinstance(message := session.next_message(), Infer | Cancel):
        if isinstance(message, Infer):
            session.echo(message)


def test_all_refuse_the_session(make_pool: MakePool, started: Callable[..., ScriptedServer]) -> None:
    def script(session: Session) -> None:
        session.receive(Hello)
        session.send(Failure(0, Code.UNAUTHENTICATED, "a token is needed"))
        session.expect_end()

    with pytest.raises(UnauthenticatedError, match="a token is needed"), make_pool(started(script), started(script)):
        pass


def test_a_closed_pool_says_so(started: Callable[..., ScriptedServer]) -> None:
    pool = Pool([started(echo_all, echo_all).address])
    pool.connect()
    pool.infer("echo", X)
    pool.close()
    with pytest.raises(ConnectError, match="closed"):
        pool.infer("echo", X)
    pool.connect()
    pool.infer("echo", X)
    pool.close()


def test_a_closed_pool_ends_what_is_in_flight(started: Callable[..., ScriptedServer]) -> None:
    asked = threading.Event()

    def script(session: Session) -> None:
        session.welcome()
        session.receive(Infer)
        asked.set()
        session.expect_end()

    async def work(address: Address) -> None:
        pool = AsyncPool([address])
        task = asyncio.create_task(pool.infer("echo", X))
        await asyncio.to_thread(asked.wait)
        await pool.close()
        with pytest.raises((ConnectionLostError, ConnectError)):
            await task

    asyncio.run(work(started(script).address))


def test_a_cancelled_task_takes_its_request_back(started: Callable[..., ScriptedServer]) -> None:
    asked = threading.Event()

    def script(session: Session) -> None:
        session.welcome()
        infer = session.receive(Infer)
        asked.set()
        assert session.receive(Cancel).id == infer.id
        session.expect_end()

    async def work(address: Address) -> None:
        async with AsyncPool([address]) as pool:
            task = asyncio.create_task(pool.infer("echo", X))
            await asyncio.to_thread(asked.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [server.in_flight for server in pool.servers] == [0]

    asyncio.run(work(started(script).address))


def test_a_forked_child_has_connections_of_its_own(started: Callable[..., ScriptedServer]) -> None:
    with Pool([started(echo_all, echo_all).address]) as pool:
        pool.infer("echo", X)
        child = os.fork()
        if not child:
            code = 1
            try:
                code = int(not np.array_equal(pool.infer("echo", X + 1)["y"], X + 1))
                pool.close()
            finally:
                os._exit(code)
        pool.infer("echo", X)
        assert os.waitpid(child, 0)[1] == 0
        pool.infer("echo", X)


def test_one_caller_at_a_time(started: Callable[..., ScriptedServer]) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def script(session: Session) -> None:
        session.welcome()
        infer = session.receive(Infer)
        asked.set()
        go_on.wait(20)
        session.echo(infer)
        session.expect_end()

    with Pool([started(script).address]) as pool:
        caller = threading.Thread(target=pool.infer, args=("echo", X))
        caller.start()
        asked.wait(20)
        with pytest.raises(RuntimeError, match="give each thread its own Pool"):
            pool.infer("echo", X)
        go_on.set()
        caller.join()
