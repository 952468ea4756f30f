"""Trading models behind a real server, asked as trading systems ask: over TCP and over a Unix socket, one at a time,
pipelined, and by eight clients at once. Every answer is what onnxruntime gives for the same batch, bit for bit, and the
observer's totals are what was asked, exactly."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import numpy as np
import pytest
from tests.inputs import SOURCE
from tests.integration.observer.observing import Scrape
from tests.questions import Case, Question, cases, check, check_all, questions, totals
from tests.reference import reference_session
from tests.serving import RunningServer, serve

from tickpath.client import AsyncClient, Client, RefusedError
from tickpath.console.scrape import fetch

CLIENTS = 8
AT_ONCE = 16
# A request may wait behind a whole queue of slow ones, on a machine that does other things too.
TIMEOUT_S = 60.0


@pytest.fixture(scope="module", params=[SOURCE])
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    return cases(request.param, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def asked(models: list[Case]) -> dict[str, list[Question]]:
    """By model, in the order they are served."""
    return {case.name: questions(case) for case in models}


@pytest.fixture(scope="module", params=["inline", "thread", "inline, spinning"])
def server(
    request: pytest.FixtureRequest, models: list[Case], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    executor, _, spinning = request.param.partition(", ")
    # Eight clients may ask the same model at once.
    entries = [{**case.entry, "executor": executor, "queue_max": CLIENTS * AT_ONCE} for case in models]
    flags = ["--spin"] if spinning else []
    with serve(tmp_path_factory.mktemp("server"), entries, flags=flags, observer_port=0) as server:
        assert counted(server) == Counter()
        yield server


@pytest.fixture(params=["tcp", "unix"])
def address(request: pytest.FixtureRequest, server: RunningServer) -> str:
    return server.address if request.param == "tcp" else server.uds


def counted(server: RunningServer) -> Counter[tuple[str, ...]]:
    """The totals that are not zero, as `totals` has them."""
    with Client(server.address) as client:
        client.ping()  # behind it, what was answered has been counted
    assert server.ready.observer is not None
    scrape = Scrape("\n".join(fetch(server.ready.observer)))
    assert scrape.value("tickpath_records_lost_total") == 0
    labels = {
        "tickpath_requests_total": ("model", "code"),
        "tickpath_graph_replays_total": ("model", "bucket"),
        "tickpath_padded_rows_total": ("model",),
    }
    return +Counter(
        {
            (sample.name, *(sample.labels[label] for label in labels[sample.name])): int(sample.value)
            for sample in scrape.samples
            if sample.name in labels
        }
    )


@pytest.fixture
def exactly_counted(server: RunningServer, asked: dict[str, list[Question]]) -> Iterator[None]:
    """A test asks each question once, and the server counts just that."""
    before = counted(server)
    yield
    assert counted(server) == before + totals(question for of_model in asked.values() for question in of_model)


def shuffled(asked: dict[str, list[Question]]) -> list[Question]:
    mixed = [question for of_model in asked.values() for question in of_model]
    return [mixed[place] for place in np.random.default_rng(0).permutation(len(mixed))]


@pytest.mark.usefixtures("exactly_counted")
def test_one_at_a_time(address: str, asked: dict[str, list[Question]]) -> None:
    ask_one_at_a_time(address, shuffled(asked))


@pytest.mark.usefixtures("exactly_counted")
def test_pipelined(address: str, asked: dict[str, list[Question]]) -> None:
    with Client(address, timeout_s=TIMEOUT_S) as client:
        for model, of_model in asked.items():
            check_all(of_model, client.infer_many(model, [question.batch for question in of_model]))


@pytest.mark.usefixtures("exactly_counted")
def test_eight_clients_at_once(address: str, asked: dict[str, list[Question]]) -> None:
    """Half of them block, and half are async and have up to sixteen requests in flight, to all models."""
    mixed = shuffled(asked)
    shares = [mixed[start::CLIENTS] for start in range(CLIENTS)]
    asking = [ask_one_at_a_time, ask_in_runs, ask_together, ask_async_runs] * (CLIENTS // 4)
    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(ask, address, share) for ask, share in zip(asking, shares, strict=True)]:
            done.result()


def ask_one_at_a_time(address: str, share: Sequence[Question]) -> None:
    with Client(address, timeout_s=TIMEOUT_S) as client:
        for question in share:
            try:
                check(question, client.infer(question.model, question.batch))
            except RefusedError as refused:
                check(question, refused)


def ask_in_runs(address: str, share: Sequence[Question]) -> None:
    """Pipelined, model after model."""
    with Client(address, timeout_s=TIMEOUT_S) as client:
        for model, run in runs(share):
            check_all(run, client.infer_many(model, [question.batch for question in run], in_flight=AT_ONCE))


def ask_together(address: str, share: Sequence[Question]) -> None:
    """Requests to all models are in flight together, and answered in the order in which they end."""

    async def ask() -> None:
        async with AsyncClient(address, timeout_s=TIMEOUT_S) as client:
            for start in range(0, len(share), AT_ONCE):
                part = share[start : start + AT_ONCE]
                infers = [client.infer(question.model, question.batch) for question in part]
                check_all(part, await asyncio.gather(*infers, return_exceptions=True))

    asyncio.run(ask())


def ask_async_runs(address: str, share: Sequence[Question]) -> None:
    async def ask() -> None:
        async with AsyncClient(address, timeout_s=TIMEOUT_S) as client:
            for model, run in runs(share):
                check_all(run, await client.infer_many(model, [each.batch for each in run], in_flight=AT_ONCE))

    asyncio.run(ask())


def runs(share: Sequence[Question]) -> Iterator[tuple[str, list[Question]]]:
    for model, run in groupby(sorted(share, key=lambda question: question.model), lambda question: question.model):
        yield model, list(run)


def test_a_row_is_answered_as_if_it_were_alone(models: list[Case], asked: dict[str, list[Question]]) -> None:
    """Company, padding and the batch size of the file change an answer by rounding only."""
    for case in models:
        session = reference_session(case.single)
        (name,) = (tensor.name for tensor in session.get_inputs())
        for question in asked[case.name][:24]:
            if question.answer is not None:
                alone = [session.run(None, {name: row[None]})[0][0] for row in question.batch]
                np.testing.assert_allclose(question.answer, alone, rtol=1e-4, atol=1e-5)


def test_the_questions_tell_answers_apart(asked: dict[str, list[Question]]) -> None:
    """Else a stale or a swapped answer could pass for the right one. Some have holes."""
    for of_model in asked.values():
        answered = [(each.batch.tobytes(), each.answer.tobytes()) for each in of_model if each.answer is not None]
        batches, answers = map(set, zip(*answered, strict=True))
        assert len(batches) == len(answers)
        assert len(answered) < len(of_model)
