"""As much of kustomize as deploy/kubernetes uses: resources, and patches that are merged strategically."""

from pathlib import Path
from typing import Any, Final

import yaml
from tests.deploy.rules import ROOT

KUBERNETES: Final = ROOT / "deploy" / "kubernetes"
LAYERS: Final = ("base", "gpu")
UNDERSTOOD: Final = {"apiVersion", "kind", "resources", "patches"}
Manifest = dict[str, Any]


def render(folder: Path) -> list[Manifest]:
    """The manifests of a layer, as `kubectl kustomize` gives them but for their order."""
    layer = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(layer) <= UNDERSTOOD, "this renderer knows less than kustomize: teach it"
    found: list[Manifest] = []
    for name in layer["resources"]:
        path = folder / name
        found += render(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    for patch in layer.get("patches", []):
        assert set(patch) == {"path"}
        change = yaml.safe_load((folder / patch["path"]).read_text())
        (index,) = (index for index, manifest in enumerate(found) if identity(manifest) == identity(change))
        found[index] = merge(found[index], change)
    return found


def identity(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def merge(old: Any, new: Any) -> Any:
    """A strategic merge: mappings by key, lists of what has a name by that name, all else replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: merge(old[key], value) if key in old else value for key, value in new.items()}
    if isinstance(old, list) and isinstance(new, list) and all("name" in item for item in (*old, *new)):
        changes = {item["name"]: item for item in new}
        kept = [merge(item, changes.pop(item["name"], {})) for item in old]
        return [*changes.values(), *kept]
    return new
