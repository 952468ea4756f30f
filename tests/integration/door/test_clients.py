"""tritonclient, as it comes, against the door: what it asks is answered as its own server would."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tests.doors import DTYPES, KINDS, ROWS_MAX, Triton, arrays, floats, oip
from tests.serving import RunningServer
from tritonclient.utils import np_to_triton_dtype

SIDES = ("http", "grpc")
BEGIN = {"sequence_id": 5, "sequence_start": True}


def client_of(server: RunningServer, side: str) -> Any:
    if side == "http":
        return tritonclient.http.InferenceServerClient(oip(server), concurrency=8)
    return tritonclient.grpc.InferenceServerClient(server.ready.oip_grpc)


def plain(client: Any, method: str, *arguments: str) -> Any:
    """What a method of either client answers, as plain values."""
    as_json = {"as_json": True} if client.__module__.startswith("tritonclient.grpc") else {}
    return getattr(client, method)(*arguments, **as_json)


def drawn(dtype: str, rows: int) -> np.ndarray[Any, Any]:
    """Rows of every sort of value that the dtype has, the outermost among them."""
    kind = np.dtype(dtype)
    random = np.random.default_rng(0)
    if kind == np.bool_:
        return random.integers(0, 2, (rows, 4)).astype(bool)
    if kind.kind == "f":
        values = random.standard_normal((rows, 4)).astype(kind)
        values[0, :2] = np.finfo(kind).min, np.finfo(kind).tiny
        return values
    values = random.integers(0, 100, (rows, 4)).astype(kind)
    values[0, :2] = np.iinfo(kind).min, np.iinfo(kind).max
    return values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_bit_for_bit(server: RunningServer, dtype: str, kind: str) -> None:
    x = drawn(dtype, 2)
    y = Triton(server, kind).infer(dtype, {"x": x})["y"]
    assert (y.dtype, y.shape, y.tobytes()) == (x.dtype, x.shape, x.tobytes())


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_rows_up_to_the_largest_bucket(server: RunningServer, kind: str) -> None:
    triton = Triton(server, kind)
    for rows in (1, 3, ROWS_MAX):
        np.testing.assert_array_equal(triton.infer("float32", {"x": floats(rows)})["y"], floats(rows))
    status, message = triton.refusal("float32", {"x": floats(ROWS_MAX + 1)})
    assert status in ("400", "INVALID_ARGUMENT")
    assert "takes 1 to 8 rows in a request, got 9" in message


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_several_inputs_in_any_order_and_chosen_outputs(server: RunningServer, kind: str) -> None:
    data, state = np.ones((2, 4, 3), np.float32), np.ones((1, 2, 5), np.float32)
    triton = Triton(server, kind)
    both = triton.infer("two", {"state": state, "data": data})
    assert {name: array.shape for name, array in both.items()} == {"predictions": (2, 4, 5), "state_out": (1, 2, 5)}
    chosen = triton.infer(
        "two", {"data": data, "state": state}, outputs=[triton.library.InferRequestedOutput("state_out")]
    )
    assert list(chosen) == ["state_out"]
    np.testing.assert_array_equal(chosen["state_out"], both["state_out"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("model", "inputs", "options", "statuses", "told"),
    [
        ("nope", {"x": floats(1)}, {}, ("404", "NOT_FOUND"), "no model 'nope' is served"),
        ("float32", {"x": floats(1)}, {"model_version": "9"}, ("404", "NOT_FOUND"), "no version '9' loaded"),
        ("float32", {"q": floats(1)}, {}, ("400", "INVALID_ARGUMENT"), "missing: 'x'; unexpected: 'q'"),
        (
            "float32",
            {"x": floats(1)[:, :3]},
            {},
            ("400", "INVALID_ARGUMENT"),
            "expected float32[N,4], got float32[1,3]",
        ),
        ("float32", {"x": floats(1)[0]}, {}, ("400", "INVALID_ARGUMENT"), "one row has its batch axis too"),
        ("float32", {"x": floats(1).astype(float)}, {}, ("400", "INVALID_ARGUMENT"), "expected float32, got float64"),
        ("float32", {"x": np.array([[b"text"]], object)}, {}, ("400", "INVALID_ARGUMENT"), "got 'BYTES'"),
        ("float32", {"x": floats(1) + np.nan}, {}, ("400", "INVALID_ARGUMENT"), "holds a NaN"),
        ("float32", {"x": floats(1)}, {"timeout": 1}, ("504", "DEADLINE_EXCEEDED"), "the budget of 1000 ns"),
        ("float32", {"x": floats(1)}, {"priority": 5}, ("400", "INVALID_ARGUMENT"), "expected 1, the highest, to 4"),
        ("float32", {"x": floats(1)}, {"sequence_id": 5}, ("400", "INVALID_ARGUMENT"), "has not begun"),
        ("float32", {"x": floats(1)}, BEGIN, ("400", "INVALID_ARGUMENT"), "keeps nothing from one request to the next"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused_says_why(
    server: RunningServer, kind: str, model: str, inputs: Any, options: Any, statuses: Any, told: str
) -> None:
    status, message = Triton(server, kind).refusal(model, inputs, **options)
    assert status in statuses
    assert told in message
    assert "\n" not in message


@pytest.mark.parametrize("kind", ["http", "http json", "grpc"])
def test_nan_passes_where_the_model_lets_it(server: RunningServer, kind: str) -> None:
    x = np.array([[np.nan, 1, -2, np.nan]], np.float32)
    np.testing.assert_array_equal(Triton(server, kind).infer("passing", {"x": x})["y"], x)


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_can_be_named(server: RunningServer, kind: str) -> None:
    triton = Triton(server, kind)
    assert triton.infer("float32", {"x": drawn("float64", 1)}, model_version="7")["y"].dtype == np.float64
    assert triton.infer("float32", {"x": floats(1)}, model_version="1")["y"].dtype == np.float32
    assert triton.infer("float32", {"x": floats(1)})["y"].dtype == np.float32


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_both_ways(server: RunningServer, coding: str) -> None:
    coded = {"request_compression_algorithm": coding, "response_compression_algorithm": coding}
    for kind in ("http", "http json"):  # the asyncio one of this release forgot to import what compresses
        x = floats(ROWS_MAX)
        np.testing.assert_array_equal(Triton(server, kind).infer("float32", {"x": x}, **coded)["y"], x)
    x = drawn("float64", 1)
    np.testing.assert_array_equal(
        Triton(server, "grpc").infer("float64", {"x": x}, compression_algorithm=coding)["y"], x
    )


@pytest.mark.parametrize("side", SIDES)
def test_health_and_metadata(server: RunningServer, side: str) -> None:
    with client_of(server, side) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        ready = [client.is_model_ready(*model) for model in (("two",), ("float32", "7"), ("float32", "8"), ("nope",))]
        assert ready == [True, True, False, False]
        about = plain(client, "get_server_metadata")
        assert about["name"] == "tickpath"
        assert {"binary_tensor_data", "schedule_policy", "sequence"} < set(about["extensions"])
        metadata = plain(client, "get_model_metadata", "two")
        assert [tensor["name"] for tensor in metadata["inputs"]] == ["data", "state"]
        assert [list(map(int, tensor["shape"])) for tensor in metadata["inputs"]] == [[-1, 4, 3], [1, -1, 5]]
        assert {tensor["datatype"] for tensor in metadata["outputs"]} == {"FP32"}
        assert sorted(plain(client, "get_model_metadata", "float32")["versions"]) == ["1", "7"]


@pytest.mark.parametrize("side", SIDES)
def test_the_configuration_says_what_a_batch_is(server: RunningServer, side: str) -> None:
    with client_of(server, side) as client:
        found = {name: plain(client, "get_model_config", name) for name in ("float16", "two")}
    echo, two = (config.get("config", config) for config in found.values())
    assert echo["max_batch_size"] == ROWS_MAX
    assert echo["input"][0]["data_type"] == "TYPE_FP16"
    assert list(map(int, echo["input"][0]["dims"])) == [4]
    assert two.get("max_batch_size", 0) == 0  # its batch axis is not the first one in every tensor
    assert list(map(int, two["input"][0]["dims"])) == [-1, 4, 3]


@pytest.mark.parametrize("side", SIDES)
def test_statistics_count_what_was_asked(server: RunningServer, side: str) -> None:
    def counts(client: Any) -> tuple[int, int, int]:
        (of_model,) = plain(client, "get_inference_statistics", "uint16")["model_stats"]
        success = of_model["inference_stats"].get("success", {}).get("count", 0)
        fail = of_model["inference_stats"].get("fail", {}).get("count", 0)
        return int(of_model.get("inference_count", 0)), int(success), int(fail)

    triton = Triton(server, side)
    with client_of(server, side) as client:
        before = counts(client)
        triton.infer("uint16", {"x": drawn("uint16", 3)})
        triton.refusal("uint16", {"x": drawn("uint32", 3)})
        assert np.subtract(counts(client), before).tolist() == [3, 1, 1]
        assert len(plain(client, "get_inference_statistics")["model_stats"]) == len(DTYPES) + 4


@pytest.mark.parametrize("side", SIDES)
def test_the_index_lists_what_is_loaded(server: RunningServer, side: str) -> None:
    with client_of(server, side) as client:
        listed = plain(client, "get_model_repository_index")
    listed = listed["models"] if isinstance(listed, dict) else listed
    assert {"float32 1", "float32 7", "two 1"} < {f"{model['name']} {model['version']}" for model in listed}
    assert {model["state"] for model in listed} == {"READY"}


@pytest.mark.parametrize("side", SIDES)
def test_nobody_loads_or_unloads_unless_that_is_configured(server: RunningServer, side: str) -> None:
    with client_of(server, side) as client:
        for method in (client.load_model, client.unload_model):
            with pytest.raises(tritonclient.utils.InferenceServerException, match="may not load or unload") as refused:
                method("float32")
            assert str(refused.value.status()) in ("403", "StatusCode.PERMISSION_DENIED")


def test_many_at_once_over_http_get_their_own_answers(server: RunningServer) -> None:
    """The client's own way to have several under way: greenlets, which threads must not share."""
    with client_of(server, "http") as client:
        asked = {}
        for number in range(48):
            tensor = tritonclient.http.InferInput("x", [1, 4], "INT64")
            tensor.set_data_from_numpy(np.full((1, 4), number, np.int64))
            asked[number] = client.async_infer("int64", [tensor])
        answers = {number: int(handle.get_result().as_numpy("y")[0, 0]) for number, handle in asked.items()}
    assert answers == {number: number for number in range(48)}


def test_many_at_once_over_grpc_get_their_own_answers(server: RunningServer) -> None:
    triton = Triton(server, "grpc")

    def work(number: int) -> None:
        x = np.full((1 + number % ROWS_MAX, 4), number, np.int64)
        np.testing.assert_array_equal(triton.infer("int64", {"x": x})["y"], x)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(48)))


def test_a_stream_answers_in_order_and_goes_on_after_a_refusal(server: RunningServer) -> None:
    answers: list[Any] = []
    all_there = threading.Semaphore(0)

    def answered(result: Any, error: Any) -> None:
        answers.append(error or arrays(result)["y"][0, 0])
        all_there.release()

    with tritonclient.grpc.InferenceServerClient(server.ready.oip_grpc) as client:
        client.start_stream(answered)
        for number in range(20):
            x = np.full((1, 4), number, np.int64 if number != 7 else np.int32)
            tensor = tritonclient.grpc.InferInput("x", [1, 4], np_to_triton_dtype(x.dtype))
            tensor.set_data_from_numpy(x)
            client.async_stream_infer("int64", [tensor], request_id=str(number))
        for _ in range(20):
            assert all_there.acquire(timeout=30)
        client.stop_stream()
    assert "expected int64, got int32" in str(answers.pop(7))
    assert answers == [number for number in range(20) if number != 7]


def test_streams_side_by_side(server: RunningServer) -> None:
    async def stream(client: Any, number: int) -> list[int]:
        async def requests() -> Any:
            for step in range(10):
                tensor = tritonclient.grpc.InferInput("x", [1, 4], "INT64")
                tensor.set_data_from_numpy(np.full((1, 4), 100 * number + step, np.int64))
                yield {"model_name": "int64", "inputs": [tensor]}

        return [int(arrays(result)["y"][0, 0]) async for result, error in client.stream_infer(requests()) if not error]

    async def all_streams() -> list[list[int]]:
        async with tritonclient.grpc.aio.InferenceServerClient(server.ready.oip_grpc) as client:
            return list(await asyncio.gather(*(stream(client, number) for number in range(6))))

    assert asyncio.run(all_streams()) == [[100 * number + step for step in range(10)] for number in range(6)]
