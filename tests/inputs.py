"""Where the real models and market data are that some tests need. They are not part of the repository."""

import os
from pathlib import Path
from typing import Final

CHECKOUT = Path(__file__).resolve().parent.parent


def inputs_root() -> Path | None:
    """The folder of real inputs: the environment variable TICKPATH_INPUTS, else `../shared/inputs` beside the checkout.
    None where there is none, and then a test that needs it skips."""
    root = Path(os.environ.get("TICKPATH_INPUTS") or CHECKOUT.parent / "shared" / "inputs")
    return root if root.is_dir() else None


# Where tests that go the same way with zoo models get theirs from; that the real ones are absent is said elsewhere.
SOURCE: Final = "real" if inputs_root() else "zoo"
