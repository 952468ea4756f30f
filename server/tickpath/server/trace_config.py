"""Which requests leave as OpenTelemetry traces, and where to."""

from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from tickpath.server.config_types import Place

# A secret in an address would be in logs and in lists of processes: there is a file for those.
ENDPOINT_PATTERN = r"^https?://[^\s@/?#]+(/[^\s@#]*)?\Z"
ENDPOINT_WORDS = (
    "of http:// or https:// as in http://127.0.0.1:4318/v1/traces, without a user or a password: these belong in a "
    "headers_file"
)


class TraceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Traces: docs/OBSERVER.md."""

    # OTLP over HTTP, the whole URL.
    endpoint: Annotated[str, msgspec.Meta(pattern=ENDPOINT_PATTERN)]
    # `Name: value` on each line, sent with each export; read again each time, so that secrets may change.
    headers_file: Place | None = None
    # Authorities whose certificates the endpoint may have; None: the system's.
    ca: Place | None = None
    # A share of all requests. None of them: most are as the next one is, and the slow ones come anyway.
    sample: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    # Requests that took longer than so many ms; or than p99.9 of their model's last minute; or none.
    slow: Annotated[float, msgspec.Meta(gt=0, le=3_600_000)] | str = "p99.9"


def check_trace(config: TraceConfig, observed: bool) -> str:
    """What is wrong with it; empty where nothing is. `observed`: there is an observer."""
    if not observed:
        return "trace: it is the observer that sends traces, and there is none: give an observer_port"
    if not _has_place(config.endpoint):
        return "trace: endpoint: a host and a port up to 65535 expected, as in http://127.0.0.1:4318/v1/traces"
    if isinstance(config.slow, str) and config.slow not in ("p99.9", "off"):
        return f'trace: slow: "p99.9", "off" or a number of ms expected, {config.slow!r} came'
    if config.slow == "off" and not config.sample:
        return 'trace: nothing would be sent: set sample above 0, or slow to "p99.9" or a number of ms'
    return ""


def _has_place(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # no address between the brackets, or no port behind the colon
        return False
