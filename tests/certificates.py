"""Certificates for tests: an authority of our own, and what it signs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trustme


class Authority:
    """Writes what it signs into a folder, as PEM."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.path = str(folder / f"{name}.pem")
        self._ca.cert_pem.write_to_path(self.path)

    def server(self, name: str = "server", days: int = 1) -> dict[str, str]:
        """The values of `[tls]` for a certificate of 127.0.0.1 and localhost that ends in so many days."""
        certificate, key = self.issue(name, "127.0.0.1", "localhost", days=days)
        return {"certificate": certificate, "key": key}

    def issue(self, name: str, *identities: str, days: int = 1, common_name: str | None = None) -> tuple[str, str]:
        """The paths of a certificate and its key. `days` below 0: it has ended."""
        ends = datetime.now(UTC) + timedelta(days=days)
        begins: dict[str, Any] = {"not_before": ends - timedelta(days=1)} if days < 0 else {}
        made = self._ca.issue_cert(*identities, common_name=common_name, not_after=ends, **begins)
        paths = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        for path, data in zip(
            paths, (b"".join(blob.bytes() for blob in made.cert_chain_pems), made.private_key_pem.bytes()), strict=True
        ):
            fresh = path.with_suffix(".part")
            fresh.write_bytes(data)
            fresh.rename(path)
        return str(paths[0]), str(paths[1])
