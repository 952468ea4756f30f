"""A version of a repository appears whole: a server that looks there meanwhile sees no folder without its model."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tickpath.engines.source_file import VERSION_STEM


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Where to write what is to be `out`. That is `out` itself, unless it is the model.* of a version whose folder is
    not there: then it is in a folder that repositories pass over, which takes the right name in the end, if nothing was
    raised. Raises OSError, with nothing left behind."""
    if out.stem != VERSION_STEM or out.parent.exists():
        yield out
        return
    missing = next(folder for folder in reversed((out.parent, *out.parent.parents)) if not folder.exists())
    part = Path(tempfile.mkdtemp(prefix=f".{missing.name}.", suffix=".part", dir=missing.parent))
    try:
        os.chmod(part, 0o755)  # mkdtemp's are the owner's alone, and the server may run as another user
        inner = part / out.relative_to(missing)
        inner.parent.mkdir(parents=True, exist_ok=True)
        yield inner
        part.rename(missing)
    finally:
        shutil.rmtree(part, ignore_errors=True)
