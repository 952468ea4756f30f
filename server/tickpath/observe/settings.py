"""How an observer is told to serve."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ObserverSettings:
    """`server_name`: what metrics call the server. `token_file`: tokens, one of which a scrape must bring; None: nobody
    is asked. `triton_names`: whether /metrics has Triton's names, too."""

    host: str
    port: int
    server_name: str
    token_file: str | None = None
    triton_names: bool = False
