"""How an observer is told to serve."""

from typing import Final

import msgspec

from tickpath.logs import LogFormat

P999: Final = "p99.9"
NEVER_NS: Final = 2**63 - 1
"""Longer than anything takes."""


class TraceSettings(msgspec.Struct, frozen=True):
    """Where traces go, and of which requests. `endpoint`: the URL of OTLP over HTTP; `headers_file`: headers that go
    with it; `ca`: the authorities its certificate may be from, None: the system's; `sample`: a share of all requests;
    `slow`: those above so many ms, above `P999` of their model, or "off"."""

    endpoint: str
    headers_file: str | None = None
    ca: str | None = None
    sample: float = 0.0
    slow: str = P999

    @property
    def slow_ns(self) -> int:
        return NEVER_NS if self.slow == "off" else round(float(self.slow) * 1e6)


class ObserverSettings(msgspec.Struct, frozen=True):
    """What the core tells its observer. `records_fd`: the descriptor of its memory; `tally_fd`: of memory in which what
    was counted outlives this process, None: it does not. `port`: 0: a free one. `server_name`: what metrics call the
    server. `token_file`: tokens, one of which a scrape must bring; None: nobody is asked. `triton_names`: whether
    /metrics has Triton's names, too. `trace`: None: no traces leave."""

    records_fd: int
    server_name: str
    host: str = "127.0.0.1"
    port: int = 0
    tally_fd: int | None = None
    token_file: str | None = None
    triton_names: bool = False
    trace: TraceSettings | None = None
    log_format: LogFormat = "human"
