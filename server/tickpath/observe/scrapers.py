"""Who may scrape: whoever brings one of a file's tokens, as it is now."""

from pathlib import Path

from tickpath.wire.small_files import read_small
from tickpath.wire.tokens import FILE_BYTES_MAX, TokenError, is_one_of, read_digests

BEARER = "bearer"


class Scrapers:
    """The file is looked at for each scrape and read again when it has changed; one that can't be read lets nobody
    in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._digests: tuple[bytes, ...] = ()

    def may(self, authorization: str) -> bool:
        """With this Authorization header."""
        kind, _, token = authorization.strip().partition(" ")
        return is_one_of(token.strip(), self._now()) and kind.lower() == BEARER

    def _now(self) -> tuple[bytes, ...]:
        try:
            found = self._path.stat()
            if (seen := (found.st_mtime_ns, found.st_ino)) != self._seen:
                data, _ = read_small(self._path, FILE_BYTES_MAX)
                self._digests = read_digests(data.decode("ascii")) if len(data) <= FILE_BYTES_MAX else ()
                self._seen = seen
        except (OSError, UnicodeDecodeError, TokenError):
            self._digests, self._seen = (), None
        return self._digests
