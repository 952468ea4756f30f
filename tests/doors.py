"""A server with a door in front, and others' clients for it: tritonclient's four, unmodified, behind one small face."""

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import msgspec
import numpy as np
import numpy.typing as npt
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tests.onnx_models import gru, one_node, save
from tests.serving import RunningServer
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tickpath.door.settings import DoorReady

Arrays = dict[str, npt.NDArray[Any]]

INTEGERS: Final = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
DTYPES: Final = ("bool", *INTEGERS, "float16", "float32", "float64")
"""All that are served."""
KINDS: Final = ("http", "http json", "grpc", "http aio", "grpc aio")
ROWS_MAX: Final = 8
WIDE: Final = 1000


def write_models(folder: Path) -> list[dict[str, Any]]:
    """An echo of four numbers a row for each dtype, one that lets NaN pass, another version of one, a GRU of two
    inputs, and a wide echo."""
    models: list[dict[str, Any]] = []
    for dtype in DTYPES:
        path = save(one_node("Identity", np.dtype(dtype), ["N", 4]), folder, f"{dtype}.onnx")
        models.append({"path": str(path)})
    models.append({"path": str(folder / "float32.onnx"), "name": "passing", "non_finite": "pass"})
    models.append({"path": str(folder / "float64.onnx"), "name": "float32", "version": "7", "live": False})
    models.append({"path": str(save(gru(), folder, "two.onnx"))})
    models.append({"path": str(save(one_node("Identity", np.float32, ["N", WIDE]), folder, "wide.onnx"))})
    return models


class Triton:
    """One of tritonclient's clients. `http json` sends and takes plain numbers, the others raw bytes."""

    def __init__(self, server: RunningServer, kind: str) -> None:
        self.kind = kind
        self.json = kind == "http json"
        self.library = tritonclient.http if kind.startswith("http") else tritonclient.grpc
        self._url = oip(server) if kind.startswith("http") else server.ready.oip_grpc

    def infer(self, model: str, inputs: Arrays, **options: Any) -> Arrays:
        """The answer's outputs, by name. Raises InferenceServerException."""
        arguments = {"inputs": self._inputs(inputs), **options}
        if self.json:
            arguments["outputs"] = [self.library.InferRequestedOutput("y", binary_data=False)]
        if self.kind.endswith("aio"):
            return asyncio.run(self._awaited(model, arguments))
        with self.library.InferenceServerClient(self._url) as client:
            return arrays(client.infer(model, **arguments))

    async def _awaited(self, model: str, arguments: Mapping[str, Any]) -> Arrays:
        library = tritonclient.http.aio if self.kind.startswith("http") else tritonclient.grpc.aio
        async with library.InferenceServerClient(self._url) as client:
            return arrays(await client.infer(model, **arguments))

    def _inputs(self, inputs: Arrays) -> list[Any]:
        made = []
        for name, array in inputs.items():
            tensor = self.library.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
            if not self.json:
                tensor.set_data_from_numpy(array)
            elif array.dtype == np.float16:  # the client's own rule is that these travel raw
                tensor.set_data_from_numpy(array, binary_data=True)
            else:
                tensor.set_data_from_numpy(array, binary_data=False)
            made.append(tensor)
        return made

    def refusal(self, model: str, inputs: Arrays, **options: Any) -> tuple[str, str]:
        """The status and the words with which this is refused."""
        try:
            answer = self.infer(model, inputs, **options)
        except InferenceServerException as error:
            return str(error.status()).removeprefix("StatusCode."), str(error.message())
        raise AssertionError(f"it was answered: {answer}")


def arrays(result: Any) -> Arrays:
    """All outputs of a client's result."""
    response = result.get_response()
    told = response["outputs"] if isinstance(response, dict) else response.outputs
    names = [output["name"] if isinstance(output, dict) else output.name for output in told]
    return {name: result.as_numpy(name) for name in names}


@contextmanager
def door(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], DoorReady]]:
    """`tickpath door`, until SIGTERM ends it with 0."""
    command = [sys.executable, "-m", "tickpath.cli", "door", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, msgspec.json.decode(process.stdout.readline(), type=DoorReady)
        finally:
            process.terminate()
        assert process.wait(20) == 0


def oip(server: RunningServer) -> str:
    """The REST side as host:port."""
    assert server.ready.oip is not None
    return server.ready.oip.removeprefix("http://")


def ask(where: RunningServer | str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """A bare request, POST where there is a body (bytes as they are, else as JSON): its status, and the JSON of its
    answer."""
    url = where if isinstance(where, str) else where.ready.oip
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"{url}/{path}", data, names)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def health(server: str | None, service: bytes = b"") -> bytes:
    """What gRPC's own health service answers, as bytes: `make test-door` asks it with gRPC's own client."""
    with grpc.insecure_channel(server) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        return bytes(check(b"\x0a%c%b" % (len(service), service) if service else b"", timeout=30))


def request_of(array: npt.NDArray[Any], datatype: str = "FP32", **fields: Any) -> dict[str, Any]:
    """An inference request in JSON, of one input `x`."""
    tensor = {"name": "x", "datatype": datatype, "shape": array.shape, "data": array.ravel().tolist()}
    return {"inputs": [tensor | fields]}


def floats(rows: int) -> npt.NDArray[np.float32]:
    """Rows for the echo of float32."""
    return np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)
