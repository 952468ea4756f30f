"""TensorRT's timing cache: how long each candidate kernel took here, so that the next build need not time it again.

It is a help and never a condition: a cache that is damaged, or of another runtime, is named and left aside. The file
starts with one line that says what it is; what follows it is the runtime's own and goes nowhere without its hash.
"""

import hashlib
from pathlib import Path
from typing import Final

from tickpath.engines.compile.plan_file import write_whole

MAGIC: Final = b"tickpath timing cache 1"

# Of a few hundred models; more is no timing cache.
BYTES_MAX: Final = 256 * 1024 * 1024


class TimingCacheError(Exception):
    """A timing cache is no use. The text is one line that names the file and what is wrong with it."""


def read_timing_cache(path: Path, runtime: str) -> bytes:
    """What the runtime may be given; empty where there is no file yet. Raises TimingCacheError."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise TimingCacheError(f"{path}: over {BYTES_MAX} bytes, so no timing cache")
        head, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise TimingCacheError(f"{path}: the timing cache can't be read: {error.strerror}") from None
    magic, _, rest = head.partition(b" | ")
    made_by, _, sha256 = rest.rpartition(b" | ")
    if magic != MAGIC:
        raise TimingCacheError(f"{path}: not a timing cache of ours")
    if hashlib.sha256(made_by + content).hexdigest().encode() != sha256:
        raise TimingCacheError(f"{path}: the timing cache is damaged or truncated")
    if made_by != runtime.encode():
        raise TimingCacheError(f"{path}: the timing cache is of {made_by.decode(errors='replace')}, this is {runtime}")
    return content


def write_timing_cache(path: Path, runtime: str, content: bytes) -> None:
    """Put it in the place of what is there; of two builders at once the later one's stays. Raises OSError."""
    made_by = runtime.encode()
    sha256 = hashlib.sha256(made_by + content).hexdigest().encode()
    write_whole(path, MAGIC + b" | " + made_by + b" | " + sha256 + b"\n" + content)
