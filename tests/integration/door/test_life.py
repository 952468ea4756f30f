"""The door's life beside a core: restarted when it dies, refusing when the core leaves, gone with it; and alone."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from grpc import RpcError, StatusCode
from tests.doors import Triton, ask, door, floats, health, oip, request_of
from tests.onnx_models import one_node, save, slow
from tests.processes import children, serve_until_end, wait_until_ended
from tests.repositories import add_version, scale
from tests.serving import RunningServer, serve
from tests.waiting import wait_until
from tritonclient.utils import InferenceServerException

from tickpath.door.grpc_health import NOT_SERVING, SERVING

ECHO = request_of(floats(1))
INFER = "v2/models/echo/infer"


def echo(folder: Path) -> dict[str, Any]:
    return {"path": str(save(one_node("Identity", np.float32, ["N", 4]), folder, "echo.onnx"))}


def door_of(server: RunningServer) -> int:
    """The door's process id."""
    found = [pid for pid in children(server.ready.pid) if "tickpath.door" in _words(pid)]
    return found[0] if found else 0


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def status_of(where: RunningServer | str, path: str, body: Any = None) -> int:
    """0 where nobody listens."""
    try:
        return ask(where, path, body)[0]
    except OSError:
        return 0


def test_a_killed_door_comes_back_at_its_addresses_and_goes_with_a_killed_core(tmp_path: Path) -> None:
    with serve(tmp_path, [echo(tmp_path)], oip_port=0, oip_grpc_port=0, exit_code=None) as server:
        first = door_of(server)
        assert os.getpriority(os.PRIO_PROCESS, first) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: status_of(server, INFER, ECHO) == 200, "the door answers again")
        second = door_of(server)
        assert second != first
        assert Triton(server, "grpc").infer("echo", {"x": floats(1)})["y"].tolist() == [[0, 1, 2, 3]]
        server.process.kill()
        wait_until_ended(second)


def test_a_core_that_drains_answers_what_is_in_flight_and_the_rest_is_refused(tmp_path: Path) -> None:
    entry = {"path": str(save(slow(10_000), tmp_path, "slow.onnx")), "executor": "thread", "buckets": [1]}

    async def ask_until_refused(client: Any) -> tuple[int, InferenceServerException]:
        tensor = tritonclient.grpc.InferInput("x", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
        for answered in range(100_000):
            try:
                await client.infer("slow", [tensor])
            except InferenceServerException as refused:
                return answered, refused
        raise AssertionError("it never ended")

    async def ask_while_it_ends(server: RunningServer) -> list[tuple[int, InferenceServerException]]:
        async with tritonclient.grpc.aio.InferenceServerClient(server.ready.oip_grpc) as client:
            asking = [asyncio.create_task(ask_until_refused(client)) for _ in range(8)]
            while await _answered(client) < 16:
                await asyncio.sleep(0.001)
            server.process.send_signal(signal.SIGTERM)
            return await asyncio.gather(*asking)

    with serve(tmp_path, [entry], oip_grpc_port=0) as server:
        outcomes = asyncio.run(ask_while_it_ends(server))
    assert {refused.status() for _, refused in outcomes} == {"StatusCode.UNAVAILABLE"}
    assert [str(refused) for _, refused in outcomes if "was lost" in str(refused)] == []
    assert sum(answered for answered, _ in outcomes) >= 16


async def _answered(client: Any) -> int:
    statistics = await client.get_inference_statistics("slow", as_json=True)
    return int(statistics["model_stats"][0].get("execution_count", 0))


def test_a_door_alone_waits_for_its_core_and_outlives_it(tmp_path: Path) -> None:
    uds = f"unix:{tmp_path / 's'}"
    with door("--at", uds, "--http", "0", "--grpc", "0") as (_, ready):
        assert ready.http is not None
        alone = ready.http
        for _ in range(2):  # before its core, and between two of them
            assert status_of(alone, "v2/health/live") == 200
            assert status_of(alone, "v2/health/ready") == 503
            code, answer = ask(alone, INFER, ECHO)
            assert code == 503
            assert "is the server running there?" in answer["error"]
            with tritonclient.grpc.InferenceServerClient(ready.grpc) as client:
                assert client.is_server_live()
                assert not client.is_server_ready()
                assert not client.is_model_ready("echo")
                assert health(ready.grpc) == NOT_SERVING
                with pytest.raises(InferenceServerException) as refused:
                    client.get_model_metadata("echo")
                assert refused.value.status() == "StatusCode.UNAVAILABLE"
            with serve(tmp_path, [echo(tmp_path)]):
                assert status_of(alone, "v2/health/ready") == 200
                assert status_of(alone, INFER, ECHO) == 200
                assert health(ready.grpc) == SERVING
                assert health(ready.grpc, b"inference.GRPCInferenceService") == SERVING
                with pytest.raises(RpcError) as unknown:
                    health(ready.grpc, b"inference.Nothing")
                assert unknown.value.code() == StatusCode.NOT_FOUND


def test_more_at_once_than_one_client_may_have_is_503(tmp_path: Path) -> None:
    entry = {"path": str(save(slow(400_000), tmp_path, "slow.onnx")), "executor": "thread", "buckets": [1]}

    async def flood(url: str, grpc: str) -> list[str]:
        tensor = tritonclient.http.InferInput("x", [1, 1], "FP32").set_data_from_numpy(np.ones((1, 1), np.float32))
        raw = tritonclient.grpc.InferInput("x", [1, 1], "FP32").set_data_from_numpy(np.ones((1, 1), np.float32))
        async with (
            tritonclient.http.aio.InferenceServerClient(url, conn_limit=16) as rest,
            tritonclient.grpc.aio.InferenceServerClient(grpc) as calls,
        ):
            asked = [client.infer("slow", [x]) for client, x in [(rest, tensor), (calls, raw)] for _ in range(16)]
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
        return [outcome.status() if isinstance(outcome, InferenceServerException) else "" for outcome in outcomes]

    with serve(tmp_path, [entry], oip_port=0, oip_grpc_port=0, in_flight_max=4) as server:
        statuses = asyncio.run(flood(oip(server), str(server.ready.oip_grpc)))
        assert set(statuses[:16]) == {"", "503"}
        assert set(statuses[16:]) <= {"", "StatusCode.UNAVAILABLE"}
        assert Triton(server, "http").infer("slow", {"x": np.ones((1, 1), np.float32)})["y"].shape == (1, 8)


def test_loading_and_unloading_where_it_is_configured(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    add_version(repository, "btc", "1", scale(2))
    x = {"x": np.ones((1, 3), np.float32)}
    settings: dict[str, Any] = {"repository": str(repository), "admin": str(tmp_path / "admin"), "oip_admin": True}
    with serve(tmp_path, [], oip_port=0, oip_grpc_port=0, **settings) as server:
        rest, calls = Triton(server, "http"), Triton(server, "grpc")
        assert rest.infer("btc", x)["y"][0, 0] == 2
        add_version(repository, "btc", "2", scale(5))
        with (
            tritonclient.http.InferenceServerClient(oip(server)) as http,
            tritonclient.grpc.InferenceServerClient(server.ready.oip_grpc) as grpc,
        ):
            http.load_model("btc")
            assert (rest.infer("btc", x)["y"][0, 0], calls.infer("btc", x)["y"][0, 0]) == (5, 5)
            grpc.unload_model("btc")
            assert calls.refusal("btc", x)[0] == "NOT_FOUND"
            wait_until(lambda: not http.is_model_ready("btc"), "btc is not ready")
            grpc.load_model("btc")
            assert rest.infer("btc", x)["y"][0, 0] == 5
            with pytest.raises(InferenceServerException, match="nope"):
                http.load_model("nope")


def test_what_can_not_start_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = str(listener.getsockname()[1])
        code, lines = serve_until_end(echo(tmp_path)["path"], "--port", "0", "--no-observer", "--oip", taken)
        assert code == 4
        assert f"can't listen on 127.0.0.1:{taken}: Address already in use" in lines[-1]
        command = [sys.executable, "-m", "tickpath.cli", "door", "--grpc", taken]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (4, 1)
        assert f"can't listen on 127.0.0.1:{taken}" in done.stderr
