"""Plans that no runtime made: what our own code does with one needs only its bytes."""

import hashlib

from tickpath.engines.compile.options import CompileOptions
from tickpath.engines.compile.sidecar import Recipe, Sidecar, TensorEntry
from tickpath.engines.passes.parity import OutputParity, Parity

PARITY = Parity((OutputParity(1, "y", 64, 1e-7, 1e-7, 2, 0, 0),))

RECIPE = Recipe(
    source_sha256=hashlib.sha256(b"source").hexdigest(),
    runtime="tensorrt-rtx 1.7.1.116",
    inputs=(TensorEntry("x", "float32", (1, 4), 0),),
    outputs=(TensorEntry("y", "float32", (1, 3), 0),),
    rows_fixed=None,
    options=CompileOptions("tensorrt-rtx", (1, 2)),
)


def make_sidecar(plan: bytes, recipe: Recipe = RECIPE, notes: tuple[str, ...] = ()) -> Sidecar:
    """A sidecar that fits these bytes."""
    return Sidecar(
        recipe=recipe,
        plan_sha256=hashlib.sha256(plan).hexdigest(),
        plan_bytes=len(plan),
        patterns=(0,) * len(recipe.options.buckets),
        parity=PARITY,
        notes=notes,
    )
