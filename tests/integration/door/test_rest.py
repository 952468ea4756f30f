"""The REST side byte by byte: what no client sends by itself."""

import gzip
import json
import urllib.error
import urllib.request
import zlib
from typing import Any

import numpy as np
import pytest
from tests.doors import WIDE, ask, floats, request_of
from tests.serving import RunningServer

INFER = "v2/models/float32/infer"
X = floats(1)


def refusal(server: RunningServer, body: Any, status: int = 400, path: str = INFER, **headers: str) -> str:
    """The words with which this is refused."""
    came, answer = ask(server, path, body, **headers)
    assert came == status, answer
    assert set(answer) == {"error"}
    error: str = answer["error"]
    assert "\n" not in error
    assert len(error) < 500
    return error


def test_an_answer_in_plain_json(server: RunningServer) -> None:
    status, answer = ask(server, INFER, request_of(X) | {"id": "7"})
    assert status == 200
    output = {"name": "y", "datatype": "FP32", "shape": [1, 4], "data": [0.0, 1.0, 2.0, 3.0]}
    assert answer == {"model_name": "float32", "model_version": "1", "id": "7", "outputs": [output]}


@pytest.mark.parametrize(
    "data",
    ["[0,1,2,3]", "[[0,1,2,3]]", "[[[0.0],[1.0]],[[2],[3]]]"],
)
def test_numbers_flat_or_nested(server: RunningServer, data: str) -> None:
    body = json.dumps(request_of(X, data="@")).replace('"@"', data).encode()
    assert ask(server, INFER, body)[1]["outputs"][0]["data"] == [0, 1, 2, 3]


@pytest.mark.parametrize("data", ["[NaN,Infinity,-Infinity,1]", "[null,1e999,-1e999,1]"])
def test_what_is_not_finite(server: RunningServer, data: str) -> None:
    body = json.dumps(request_of(X, data="@")).replace('"@"', data).encode()
    assert "holds a NaN" in refusal(server, body)
    status, answer = ask(server, "v2/models/passing/infer", body)
    assert (status, answer["outputs"][0]["data"]) == (200, [None, None, None, 1.0])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"data": [1.5, True, "a", {}]}, "expected numbers for FP32"),
        ({"data": ["1", "2", "3", "4"]}, "expected numbers for FP32"),
        ({"data": [[1, 2], [3]]}, "no regular array"),
        ({"data": [1, 2, 3]}, "FP32[1,4] is 4 numbers, 3 came"),
        ({"data": None}, "expected a list of numbers, got NoneType"),
        ({"data": 4}, "expected a list of numbers, got int"),
        ({"shape": [-1, 4]}, "expected a shape"),
        ({"shape": [0, 2**62], "data": []}, "expected a shape"),
        ({"shape": [1] * 65}, "expected a shape"),
        ({"shape": "1,4"}, "Expected `array`"),
        ({"datatype": "FP33"}, "expected a datatype of BOOL"),
        ({"datatype": "BF16"}, "expected a datatype of BOOL"),
        ({"parameters": {"binary_data_size": 16}}, "binary_data_size: expected 0 to the 0 bytes left, got 16"),
        ({"parameters": {"binary_data_size": -1}}, "binary_data_size"),
        ({"parameters": {"binary_data_size": True}}, "binary_data_size"),
        ({"parameters": {"shared_memory_region": "r"}}, "no shared memory"),
        ({"name": None}, "Expected `str`"),
    ],
    ids=lambda parameters: str(parameters)[:40],
)
def test_an_input_that_is_wrong(server: RunningServer, change: Any, told: str) -> None:
    assert told in refusal(server, request_of(X, **change))


@pytest.mark.parametrize(
    ("datatype", "data", "told"),
    [
        ("UINT8", [0, 1, 2, 256], "outside what UINT8 holds"),
        ("UINT8", [0, 1, 2, -1], "outside what UINT8 holds"),
        ("INT64", [0, 1, 2, 2**63], "outside what INT64 holds"),
        ("UINT64", [0, 1, 2, 2**64], "outside what UINT64 holds"),
        ("UINT64", [0, 1, 2**63, -1], "outside what UINT64 holds"),
        ("INT32", [0, 1, 2, 3.5], "expected whole numbers"),
        ("INT32", [0, 1, 2, None], "expected whole numbers"),
        ("BOOL", [0, 1, 1, 0], "expected true and false"),
    ],
)
def test_a_number_that_does_not_fit_is_not_bent(server: RunningServer, datatype: str, data: Any, told: str) -> None:
    assert told in refusal(server, request_of(X, datatype, data=data))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "not an inference request"),
        (b"{", "not an inference request"),
        (b"\xff\xfe\xfd", "not an inference request"),
        (b"[" * 50_000, "not an inference request"),
        (b'{"inputs":[],"id":' + b"9" * 6000 + b"}", "not an inference request"),
        (b"[]", "Expected `object`"),
        (b'{"inputs":{}}', "Expected `array`"),
        (b'{"inputs":[]}', "missing: 'x'"),
    ],
    ids=["empty", "cut", "bytes", "deep", "digits", "array", "mapping", "nothing"],
)
def test_a_body_that_is_no_request(server: RunningServer, body: bytes, told: str) -> None:
    assert told in refusal(server, body)


def test_one_input_twice(server: RunningServer) -> None:
    assert "came twice" in refusal(server, {"inputs": request_of(X)["inputs"] * 2})


@pytest.mark.parametrize("size", ["-1", "x", "1e3", "99999999999999999999999", "0" * 20 + "9999", "0" * 5000, "", "²"])
def test_a_length_of_the_json_that_is_wrong(server: RunningServer, size: str) -> None:
    if not size.isascii():
        size = size.encode().decode("latin-1")
    told = refusal(server, request_of(X), Inference_Header_Content_Length=size)
    assert "Inference-Header-Content-Length" in told


def test_raw_bytes_that_no_input_claims(server: RunningServer) -> None:
    head = json.dumps(request_of(X)).encode()
    told = refusal(server, head + bytes(3), Inference_Header_Content_Length=str(len(head)))
    assert "the inputs have 0 raw bytes by their binary_data_size, 3 came" in told


@pytest.mark.parametrize(
    "parameters",
    [
        {"priority": 5},
        {"priority": "high"},
        {"timeout": -1},
        {"timeout": 1.5},
        {"sequence_id": 1.5},
        {"sequence_id": 2**64},
        {"sequence_id": 10**4000},
        {"sequence_id": "x" * 65},
        {"sequence_id": "\ud800"},
        {"sequence_start": 1, "sequence_id": 1},
        {"sequence_id": 0, "sequence_end": True},
        {"priority": 1, "sequence_id": 1},
    ],
    ids=lambda parameters: str(parameters)[:40],
)
def test_a_parameter_that_is_wrong(server: RunningServer, parameters: Any) -> None:
    assert f"parameter {next(iter(parameters))}" in refusal(server, request_of(X) | {"parameters": parameters})


def test_parameters_that_nobody_knows_are_passed_over(server: RunningServer) -> None:
    assert ask(server, INFER, request_of(X) | {"parameters": {"mine": 1}, "more": {}})[0] == 200


def test_a_timeout_that_can_be_kept(server: RunningServer) -> None:
    assert ask(server, INFER, request_of(X) | {"parameters": {"timeout": 20_000_000}})[0] == 200


def test_an_output_that_the_model_does_not_give(server: RunningServer) -> None:
    assert "gives y; asked for: z" in refusal(server, request_of(X) | {"outputs": [{"name": "z"}]})
    asked = {"outputs": [{"name": "y", "parameters": {"classification": 3}}]}
    assert "classification is not done" in refusal(server, request_of(X) | asked)


def test_a_huge_body_is_refused_before_it_is_read_or_unpacked(server: RunningServer) -> None:
    limit = "a body of at most"
    assert limit in refusal(server, b" " * 40_000_000, 413)
    assert limit in refusal(server, gzip.compress(b" " * 40_000_000, 1), 413, Content_Encoding="gzip")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "nonsense"])
def test_a_body_that_is_not_packed_as_it_says(server: RunningServer, coding: str) -> None:
    refusal(server, b"\x00\x01" * 100, Content_Encoding=coding)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_packed_both_ways(server: RunningServer, coding: str) -> None:
    x = np.ones((2, WIDE), np.float32)
    body = json.dumps(request_of(x)).encode()
    packed = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
    headers = {"Content-Encoding": coding, "Accept-Encoding": coding}
    request = urllib.request.Request(f"{server.ready.oip}/v2/models/wide/infer", packed, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.headers["Content-Encoding"] == coding
        data = answer.read()
    assert len(data) < WIDE
    unpacked = gzip.decompress(data) if coding == "gzip" else zlib.decompress(data)
    assert json.loads(unpacked)["outputs"][0]["data"] == [1.0] * (2 * WIDE)


@pytest.mark.parametrize("path", ["", "v1/models/float32", "v2/nothing", "v2/models/float32/config/x", "metrics"])
def test_what_is_not_there(server: RunningServer, path: str) -> None:
    assert "see docs/DOOR.md" in refusal(server, None, 404, path)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "v2", "GET, HEAD"),
        ("PUT", "v2/health/live", "GET, HEAD"),
        ("POST", "v2/health/ready", "GET, HEAD"),
        ("POST", "v2/models/stats", "GET, HEAD"),
        ("DELETE", "v2/models/float32", "GET, HEAD"),
        ("POST", "v2/models/float32/config", "GET, HEAD"),
        ("POST", "v2/models/float32/versions/7", "GET, HEAD"),
        ("POST", "v2/models/float32/versions/7/ready", "GET, HEAD"),
        ("GET", INFER, "POST"),
        ("PUT", "v2/models/float32/versions/7/infer", "POST"),
        ("GET", "v2/repository/index", "POST"),
        ("GET", "v2/repository/models/float32/load", "POST"),
    ],
)
def test_a_path_asked_in_another_way(server: RunningServer, method: str, path: str, allowed: str) -> None:
    request = urllib.request.Request(f"{server.ready.oip}/{path}", method=method)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    with refused.value as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, allowed)
        assert f"no {method} /{path} here" in json.loads(answer.read())["error"]


@pytest.mark.parametrize("path", ["v2/nothing", "v2/models/float32/versions", "v2/repository/models/float32/nothing"])
def test_a_path_that_is_not_there_in_any_way(server: RunningServer, path: str) -> None:
    assert "see docs/DOOR.md" in refusal(server, b"", 404, path)


def test_the_protocol_s_own_words_for_health(server: RunningServer) -> None:
    assert ask(server, "v2/health/live") == (200, {"live": True})
    assert ask(server, "v2/health/ready") == (200, {"ready": True})
    assert ask(server, "v2/models/two/ready") == (200, {"name": "two", "ready": True})
    assert ask(server, "v2/models/two/versions/1/ready") == (200, {"name": "two", "ready": True})
