"""A program of torch.export with the machine code that AOTInductor makes of it, in one .pt2 file.

The program stays in the file: it says what the code takes and gives, which the code alone doesn't. The code is for CPUs
like the one it was made on.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._inductor import config
from torch.export.pt2_archive._package import package_pt2

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.spec import Array
from tickpath.engines.torch_exported import RUNTIME, load_program, said, silence


def package(path: Path, sample: Sequence[Array], trusted: bool = False) -> bytes:
    """The program in this .pt2 file and its code, as the content of another. `sample`: inputs on which it runs, of any
    number of rows. Takes a C++ compiler. Raises ModelRefusedError, which does not name the file."""
    if not (compiler := shutil.which(os.environ.get("CXX", "g++"))):
        raise ModelRefusedError("AOTInductor writes C++ and needs a compiler: install g++, or name yours in CXX")
    exported = load_program(path, trusted).exported
    args, kwargs = exported.call_spec.in_spec.unflatten([torch.from_numpy(np.array(array)) for array in sample])
    module: Any = exported.module(check_guards=False)
    try:
        with silence(), _inductor(compiler) as folder:
            files: Any = torch._inductor.aot_compile(module, args, kwargs, options={"aot_inductor.package": True})
            out = folder / "package.pt2"
            package_pt2(out, exported_programs={"model": exported}, aoti_files={"model": files})
            return out.read_bytes()
    except Exception as error:  # operators that it can't lower, a compiler that fails
        raise ModelRefusedError(f"{RUNTIME} makes no machine code of this program: {said(error)}") from None


@contextmanager
def _inductor(compiler: str) -> Iterator[Path]:
    """Inductor at work in a folder that goes with it, in this process alone: its helpers would outlive the compile."""
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    with (
        tempfile.TemporaryDirectory(prefix="tickpath-compile-") as folder,
        config.patch({"compile_threads": 1, "cpp.cxx": (None, compiler), "aot_inductor.precompile_headers": False}),
    ):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        try:
            yield Path(folder)
        finally:
            del os.environ["TORCHINDUCTOR_CACHE_DIR"]
            if before is not None:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = before
