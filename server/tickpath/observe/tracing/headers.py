"""The headers that go with what is exported, from a file, since they hold secrets."""

import re
from pathlib import Path
from typing import Final

from tickpath.wire.small_files import read_small

# A token or two. What is larger is another file.
FILE_BYTES_MAX: Final = 65536
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")


class HeadersError(Exception):
    """The file can't be used. The text says why, and nothing of what is in it."""


def read_headers(path: Path) -> dict[str, str]:
    """`Name: value` on each line; empty lines, and those that begin with #, say nothing. Raises HeadersError."""
    try:
        text, _ = read_small(path, FILE_BYTES_MAX)
        if len(text) > FILE_BYTES_MAX:
            raise HeadersError(f"{path}: at most {FILE_BYTES_MAX} bytes of headers expected")
        lines = text.decode("ascii").splitlines()
    except OSError as error:
        raise HeadersError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise HeadersError(f"{path}: ASCII expected") from None
    headers = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not (colon and _NAME.match(name) and value.strip().isprintable()):
            raise HeadersError(f"{path}: line {number}: a header as `Authorization: Bearer TOKEN` expected")
        headers[name] = value.strip()
    return headers
