"""What a user's type checker must refuse. Each line is marked with the error that each checker gives there; one that
gives none complains of the mark."""

import numpy as np

import tickpath.client as api

X = np.zeros((1, 64), np.float32)


def blocking(client: api.Client) -> None:
    api.Client()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    api.Client(7070)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    api.Client("h:1", "desk")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    api.Client("h:1", reconnect=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    client.infer("mlp")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.infer("mlp", X, 1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.infer("mlp", X, budget_ns=0.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    client.infer("mlp", X, budget_ms=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.infer_many("mlp", [X], key=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.infer_many("mlp", 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    client.open_feed("mlp", 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    client.limits = None  # type: ignore[misc, assignment]  # pyright: ignore[reportAttributeAccessIssue]


def outcomes(client: api.Client, prediction: api.Prediction) -> None:
    for outcome in client.infer_many("mlp", [X]):
        outcome.outputs  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    prediction.version = "8"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    prediction[0]  # type: ignore[index]  # pyright: ignore[reportArgumentType]


async def awaited(client: api.AsyncClient) -> None:
    with client:  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        pass
    client.infer("m", X).outputs  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def pools(feed: api.Feed) -> None:
    api.Pool(7070)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    api.Pool(["h:1"], hedge=0.95)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    api.Pool(["h:1"], tokn="t")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    api.Hedge(percentile="p99")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    feed.restore("text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
