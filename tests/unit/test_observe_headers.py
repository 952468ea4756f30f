"""The file of headers that go with traces."""

import os
from pathlib import Path

import pytest

from tickpath.observe.tracing.headers import FILE_BYTES_MAX, HeadersError, read_headers


def test_a_header_a_line(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("# ours\n\nAuthorization: Bearer x\nX-Org:  7 \n")
    assert read_headers(file) == {"Authorization": "Bearer x", "X-Org": "7"}


def test_what_is_no_file_is_told_at_once(tmp_path: Path) -> None:
    """A pipe into which nobody writes would hold up the thread for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(HeadersError, match="a file expected, a pipe, folder or device came"):
        read_headers(tmp_path / "pipe")
    with pytest.raises(HeadersError, match="directory"):
        read_headers(tmp_path)


def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(HeadersError, match=f"at most {FILE_BYTES_MAX} bytes"):
        read_headers(file)
