"""`program.py kserve|triton|health REST-URL GRPC-ADDRESS`: asks a door with others' client, in their environment.

Ends with 0 if all is answered as it should be. One client only: both describe the same messages, which a process may do
once.
"""

import asyncio
import sys
from typing import Any

import numpy as np

X = np.arange(8, dtype=np.float32).reshape(2, 4)


async def ask_with_kserve(url: str, address: str) -> None:
    from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

    def request(binary: bool, model: str = "float32") -> Any:
        tensor = InferInput("x", list(X.shape), "FP32")
        tensor.set_data_from_numpy(X, binary_data=binary)
        return InferRequest(model_name=model, infer_inputs=[tensor])

    rest, calls = InferenceRESTClient(RESTConfig(protocol="v2")), InferenceGRPCClient(address)
    assert await rest.is_server_live(url)
    assert await calls.is_server_live()
    assert await rest.is_server_ready(url)
    assert await calls.is_server_ready()
    assert await rest.is_model_ready(url, "float32")
    assert await calls.is_model_ready("float32")
    for binary in (True, False):
        answers = await rest.infer(url, request(binary), model_name="float32"), await calls.infer(request(binary))
        for answer in answers:
            np.testing.assert_array_equal(answer.outputs[0].as_numpy(), X)
    refusals = await asyncio.gather(calls.infer(request(True, "nope")), return_exceptions=True)
    assert "no model 'nope' is served" in str(refusals[0])


def ask_with_triton(url: str, address: str) -> None:
    import tritonclient.grpc
    import tritonclient.http

    for library, at in ((tritonclient.http, url.removeprefix("http://")), (tritonclient.grpc, address)):
        with library.InferenceServerClient(at) as client:
            assert client.is_server_ready()
            assert client.is_model_ready("float32")
            tensor = library.InferInput("x", list(X.shape), "FP32")
            tensor.set_data_from_numpy(X)
            np.testing.assert_array_equal(client.infer("float32", [tensor]).as_numpy("y"), X)
            assert client.get_model_config("float32") is not None
            assert client.get_inference_statistics("float32") is not None


def ask_for_health(address: str) -> None:
    import grpc
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
    from grpc_health.v1.health_pb2_grpc import HealthStub

    with grpc.insecure_channel(address) as channel:
        for service in ("", "inference.GRPCInferenceService"):
            answer = HealthStub(channel).Check(HealthCheckRequest(service=service))
            assert answer.status == HealthCheckResponse.SERVING


if __name__ == "__main__":
    client, *where = sys.argv[1:]
    if client == "kserve":
        asyncio.run(ask_with_kserve(*where))
    elif client == "health":
        ask_for_health(where[1])
    else:
        ask_with_triton(*where)
