"""Catalogues and versions for tests that need no deployment."""

from tests.numpy_engine import Compute, NumpyEngine, copy_through, tensor

from tickpath.observe.records import VersionDescription
from tickpath.server.admission import model_rules
from tickpath.server.catalogue import Catalogue
from tickpath.server.config import ModelConfig
from tickpath.server.executor import InlineExecutor
from tickpath.server.lane import Lane
from tickpath.server.version import Version
from tickpath.wire import ModelInfo, TensorInfo


def catalogue_of(*versions: Version) -> Catalogue:
    """Each version is the live one of its model, and their handles count from 0."""
    catalogue = Catalogue()
    for version in versions:
        catalogue.add(version)
        catalogue.make_live(version)
    return catalogue


def make_version(
    name: str, label: str = "1", floats: int = 1, compute: Compute = copy_through, place: int = 0
) -> Version:
    """`floats` floats a row in and out, inline, and not warmed up: what it takes is not known."""
    engine = NumpyEngine([tensor("x", (1, floats))], [tensor("y", (1, floats))], compute)
    x, y = (TensorInfo(tensor_name, "float32", (1, floats), 0) for tensor_name in "xy")
    config = ModelConfig(f"{name}.onnx", version=label, non_finite="pass")
    lane = Lane(engine, config, (1,))
    return Version(
        place=place,
        config=config,
        info=ModelInfo(name, label, 0, (x,), (y,), (1,)),
        rules=model_rules(name, 1, (x,)),
        executor=InlineExecutor(lane),
        description=VersionDescription(name, label, "numpy", "float32", "0" * 64, "inline", (1,)),
        engine=engine,
        lane=lane,
    )
