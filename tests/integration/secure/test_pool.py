"""Pools of servers that ask who comes, over TLS: one is killed under load, and comes back."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from tests.certificates import Authority
from tests.onnx_models import one_node, save
from tests.processes import free_port
from tests.secured import TOKENS, Secured, secured

from tickpath.client import (
    AddressError,
    AsyncPool,
    ConnectError,
    Health,
    Pool,
    Tls,
    UnauthenticatedError,
    token_file,
)

QUICK: Final = Health(ping_after_s=0.2, pong_s_max=0.4)
BEFORE: Final = 50


class Group:
    """Two servers of one authority on ports that stay theirs."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._authority = Authority(folder)
        self._ports = [free_port() for _ in range(2)]
        self.servers = [self._start(place) for place in range(2)]

    @property
    def addresses(self) -> list[str]:
        return [server.server.address for server in self.servers]

    @property
    def tls(self) -> Tls:
        return Tls(ca=self._authority.path)

    @property
    def token(self) -> Path:
        return self._folder / "mine.token"

    def kill(self, place: int) -> None:
        self.servers[place].server.process.kill()
        self.servers[place].server.process.wait(30)

    def start_again(self, place: int) -> None:
        self.servers[place] = self._start(place)

    def _start(self, place: int) -> Secured:
        folder = self._folder / f"{place}"
        folder.mkdir(exist_ok=True)
        model = save(one_node("Abs", "float32", ["N", 4]), folder, "abs.onnx")
        return self._stack.enter_context(
            secured(folder, [{"path": str(model)}], self._authority, port=self._ports[place], exit_code=None)
        )


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with ExitStack() as stack:
        made = Group(tmp_path_factory.mktemp("pool"), stack)
        made.token.write_text(TOKENS["desk"])
        yield made


def row(number: int) -> np.ndarray[Any, Any]:
    return np.full((1, 4), -number, np.float32)


def test_a_blocking_pool_loses_nothing_with_a_server(group: Group) -> None:
    with Pool(group.addresses, token=token_file(str(group.token)), tls=group.tls, timeout_s=60, health=QUICK) as pool:
        asked = 0

        def ask(count: int) -> None:
            nonlocal asked
            for _ in range(count):
                asked += 1
                np.testing.assert_array_equal(pool.infer("abs", row(asked))["y"], -row(asked))

        def ask_until(ready: list[bool]) -> None:
            while [server.ready for server in pool.servers] != ready:
                ask(1)

        ask_until([True, True])
        ask(BEFORE)
        many = pool.infer_many("abs", [row(number) for number in range(BEFORE)])
        assert [float(each["y"][0, 0]) for each in many if not isinstance(each, Exception)] == list(range(BEFORE))
        group.kill(0)
        ask_until([False, True])
        ask(BEFORE)
        group.start_again(0)
        ask_until([True, True])


def test_an_asyncio_pool_loses_nothing_with_a_server(group: Group) -> None:
    async def all_of_it() -> None:
        asked = 0
        ended = False
        async with AsyncPool(
            group.addresses, token=token_file(str(group.token)), tls=group.tls, timeout_s=60, health=QUICK
        ) as pool:

            async def ask() -> None:
                nonlocal asked
                while not ended:
                    asked += 1
                    mine = row(asked)
                    np.testing.assert_array_equal((await pool.infer("abs", mine))["y"], -mine)

            async def until(ready: list[bool]) -> None:
                while [server.ready for server in pool.servers] != ready or any(task.done() for task in tasks):
                    goal = asked + 10
                    while asked < goal and not any(task.done() for task in tasks):
                        await asyncio.sleep(0.001)
                    for task in tasks:
                        if task.done():
                            task.result()

            tasks = [asyncio.create_task(ask()) for _ in range(4)]
            await until([True, True])
            group.kill(1)
            await until([True, False])
            await asyncio.to_thread(group.start_again, 1)
            await until([True, True])
            ended = True
            await asyncio.gather(*tasks)

    asyncio.run(all_of_it())


def test_servers_that_do_not_know_it_refuse_as_one(group: Group) -> None:
    for token in ("", "nobody-that-is-known-here"):
        with pytest.raises(UnauthenticatedError, match="did not recognise this client"):
            Pool(group.addresses, token=token, tls=group.tls, timeout_s=20).connect()
        with pytest.raises(UnauthenticatedError, match="did not recognise this client"):
            asyncio.run(AsyncPool(group.addresses, token=token, tls=group.tls, timeout_s=20).connect())


def test_what_is_wrong_with_files_is_said(group: Group, tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"of 2 servers none is there: .*certificate"):
        Pool(group.addresses, token=TOKENS["desk"], timeout_s=20).connect()  # whom this machine trusts is not them
    with pytest.raises(ConnectError, match=r"none\.token: No such file"):
        Pool(group.addresses, token=token_file(str(tmp_path / "none.token")), tls=group.tls, timeout_s=20).connect()
    for kind in (Pool, AsyncPool):
        with pytest.raises(AddressError, match="expected an address as tls://"):
            kind([*group.addresses, "127.0.0.1:1"], token=TOKENS["desk"], tls=group.tls)
