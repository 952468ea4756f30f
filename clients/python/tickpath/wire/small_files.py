"""Files that servers and clients read again and again: tokens, certificates."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

# All authorities of an operating system are a quarter of a megabyte.
PEM_BYTES_MAX: Final = 4 << 20


def read_small(path: Path, bytes_max: int) -> tuple[bytes, os.stat_result]:
    """What is in a file, at most one byte more than `bytes_max`, and what it is. Never waits for anybody: a pipe in its
    place would, and so hold up whoever reads. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "a file expected, a pipe, folder or device came", str(path))
        return file.read(bytes_max + 1), found


def check_pem(path: Path) -> None:
    """That there is a file of a size for PEM, and no pipe, at which ssl would wait. Raises OSError."""
    data, _ = read_small(path, PEM_BYTES_MAX)
    if len(data) > PEM_BYTES_MAX:
        raise OSError(errno.EFBIG, f"more than {PEM_BYTES_MAX:,} bytes", str(path))
