"""The manifests: rendered, held against Kubernetes' own schemas, and against what the server needs."""

import shutil
import subprocess
import tomllib
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from tests.deploy.dockerfile import FOLDER, stages
from tests.deploy.kustomize import KUBERNETES, LAYERS, Manifest, identity, render

# The oldest with a `sleep` before the end that needs no shell and no feature gate; and the newest there is.
VERSIONS = ("1.30", kubernetes_validate.latest_version())
# What of a PodMonitor is used, by the reference of the Prometheus operator (monitoring.coreos.com/v1): its definition
# is the operator's, and not among Kubernetes' own.
STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
RELABELING = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"sourceLabels": STRINGS, "targetLabel": {"type": "string"}},
}
ENDPOINT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "port": {"type": "string"},
        "path": {"type": "string"},
        "interval": {"type": "string", "pattern": r"^(0|(([0-9]+)y)?(([0-9]+)m)?(([0-9]+)s)?)$"},
        "relabelings": {"type": "array", "items": RELABELING},
    },
}
POD_MONITOR = {
    "type": "object",
    "additionalProperties": False,
    "required": ["podMetricsEndpoints", "selector"],
    "properties": {
        "jobLabel": {"type": "string"},
        "selector": {"type": "object", "required": ["matchLabels"]},
        "podMetricsEndpoints": {"type": "array", "items": ENDPOINT},
    },
}


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest) -> list[Manifest]:
    return render(KUBERNETES / request.param)


def one(layer: list[Manifest], kind: str) -> Manifest:
    (manifest,) = (manifest for manifest in layer if manifest["kind"] == kind)
    return manifest


def pod(layer: list[Manifest]) -> Manifest:
    spec: Manifest = one(layer, "Deployment")["spec"]["template"]["spec"]
    return spec


def container(layer: list[Manifest]) -> Manifest:
    (only,) = pod(layer)["containers"]
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize("version", VERSIONS)
def test_they_are_what_kubernetes_knows(layer: list[Manifest], version: str) -> None:
    for manifest in layer:
        if manifest["kind"] != "PodMonitor":
            kubernetes_validate.validate(manifest, version, strict=True)


def test_the_pod_monitor_is_what_the_operator_knows(layer: list[Manifest]) -> None:
    monitor = one(layer, "PodMonitor")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    jsonschema.validate(monitor["spec"], POD_MONITOR)
    labels = one(layer, "Deployment")["spec"]["template"]["metadata"]["labels"]
    # By its job the alerts and the dashboard know it.
    assert labels[monitor["spec"]["jobLabel"]] == "tickpath"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in container(layer)["ports"]]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl, to compare the renderer above with, is not here")
@pytest.mark.parametrize("name", LAYERS)
def test_kustomize_renders_the_same(name: str) -> None:
    done = subprocess.run(["kubectl", "kustomize", KUBERNETES / name], capture_output=True, text=True, check=True)
    theirs = list(yaml.safe_load_all(done.stdout))
    assert sorted(theirs, key=identity) == sorted(render(KUBERNETES / name), key=identity)


def test_it_has_its_processors_and_memory_for_itself(layer: list[Manifest]) -> None:
    """Guaranteed: requests are limits, and whole processors, or the static CPU manager shares them out."""
    resources = container(layer)["resources"]
    assert resources["requests"] == resources["limits"]
    assert int(resources["limits"]["cpu"]) >= 2
    assert "initContainers" not in pod(layer)


def test_it_is_nobody_and_writes_where_it_may(layer: list[Manifest]) -> None:
    security = pod(layer)["securityContext"]
    (last,) = stages(FOLDER / "cpu.Dockerfile")[1:]
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == last.one("USER")
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(layer)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {mount["mountPath"] for mount in container(layer)["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/run/tickpath", "/tmp", "/dev/shm"}


def test_its_configuration_is_one_and_fits(layer: list[Manifest]) -> None:
    config = tomllib.loads(one(layer, "ConfigMap")["data"]["tickpath.toml"])
    from tickpath.server.config import ServerConfig, make_config

    made = make_config(config, "tickpath.toml")
    assert isinstance(made, ServerConfig)
    sleep_s = container(layer)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod(layer)["terminationGracePeriodSeconds"] > sleep_s + made.drain_s
    ports = {port["name"]: port["containerPort"] for port in container(layer)["ports"]}
    assert ports == {"tickpath": made.port, "observer": made.observer_port}
    mounted = {mount["mountPath"]: mount["name"] for mount in container(layer)["volumeMounts"]}
    volumes = {volume["name"] for volume in pod(layer)["volumes"]}
    assert set(mounted.values()) == volumes
    assert mounted[str(made.repository)] == "models"


def test_probes_ask_the_observer(layer: list[Manifest]) -> None:
    asked = {name: container(layer)[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {name: probe["path"] for name, probe in asked.items()} == {
        "startupProbe": "/readyz",
        "readinessProbe": "/readyz",
        "livenessProbe": "/livez",
    }
    assert {probe["port"] for probe in asked.values()} == {"observer"}


def test_a_rollout_waits_as_long_as_a_start_may_take(layer: list[Manifest]) -> None:
    startup = container(layer)["startupProbe"]
    patience_s = startup["periodSeconds"] * startup["failureThreshold"]
    assert patience_s < one(layer, "Deployment")["spec"]["progressDeadlineSeconds"]


def test_probes_are_patient_with_an_observer_that_steps_aside(layer: list[Manifest]) -> None:
    """One late answer is neither a restart nor the loss of all clients."""
    for name in ("readinessProbe", "livenessProbe"):
        probe = container(layer)[name]
        assert probe["timeoutSeconds"] >= 3
        assert probe["failureThreshold"] >= 2


def test_all_of_it_is_about_the_same_pods(layer: list[Manifest]) -> None:
    labels = one(layer, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        one(layer, "Deployment")["spec"]["selector"]["matchLabels"],
        one(layer, "Service")["spec"]["selector"],
        one(layer, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(layer, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        one(layer, "PodMonitor")["spec"]["selector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)


def test_the_network_lets_clients_and_prometheus_in_and_nothing_out(layer: list[Manifest]) -> None:
    policy = one(layer, "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == []
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == {"tickpath", "observer"}
    assert all(rule["from"] for rule in policy["ingress"])


def test_the_overlay_for_gpus_adds_one() -> None:
    base, gpu = (container(render(KUBERNETES / name)) for name in LAYERS)
    assert "nvidia.com/gpu" not in base["resources"]["limits"]
    assert gpu["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert gpu["image"] == "tickpath:gpu"
