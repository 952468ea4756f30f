"""The gRPC messages as everybody else has them: names, numbers and types, compared with what tritonclient brings."""

import json
import subprocess
import sys
from typing import Any

import pytest

# Both describe `inference.ModelInferRequest`, which one process may do once: each is asked in its own.
DUMP = """
import json, sys
from importlib import import_module

found = {}

def dump(message):
    found[message.full_name] = {
        field.name: [field.number, field.type, field.is_repeated,
                     (field.message_type or field.enum_type or field).full_name.replace(field.full_name, "")]
        for field in message.fields
    }
    for nested in message.nested_types:
        dump(nested)

for module in map(import_module, sys.argv[1:]):
    for message in module.DESCRIPTOR.message_types_by_name.values():
        dump(message)
    for enum in module.DESCRIPTOR.enum_types_by_name.values():
        found[enum.full_name] = {value.name: value.number for value in enum.values}
json.dump(found, sys.stdout)
"""


def described(*modules: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-W", "ignore", "-c", DUMP, *modules]
    found: dict[str, dict[str, Any]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


@pytest.fixture(scope="module")
def theirs() -> dict[str, dict[str, Any]]:
    return described("tritonclient.grpc.service_pb2", "tritonclient.grpc.model_config_pb2")


@pytest.fixture(scope="module")
def ours() -> dict[str, dict[str, Any]]:
    return described("tickpath.door.proto.open_inference_pb2")


def test_every_field_of_ours_is_theirs(ours: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]]) -> None:
    assert set(ours) <= set(theirs)
    different = {
        f"{message}.{name}": (field, theirs[message].get(name))
        for message, fields in ours.items()
        for name, field in fields.items()
        if theirs[message].get(name) != field
    }
    assert different == {}


def test_what_a_request_may_hold_is_whole(ours: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]]) -> None:
    whole = [name for name in theirs if name.startswith(("inference.ModelInferRe", "inference.Infer"))]
    assert [name for name in whole if set(theirs[name]) != set(ours[name])] == []
