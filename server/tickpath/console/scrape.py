"""Reading an observer's /metrics."""

import time
import urllib.error
import urllib.request

from tickpath.console.errors import ConsoleError

GAUGES = "tickpath_request_latency_seconds{"
# The observer reads the core's records many times a second; it has long started when a stream has ended.
PATIENCE_S = 5.0
RETRY_S = 0.1


def latency_lines(observer: str) -> list[str]:
    """The p50, p99 and p999 gauges as they stand in /metrics. Raises ConsoleError when they are not there within
    seconds."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            lines = [line for line in fetch(observer) if line.startswith(GAUGES)]
            found = bool(lines)
            problem = f"no line starts with {GAUGES}"
        except (urllib.error.URLError, TimeoutError) as error:
            lines, found, problem = [], False, str(error)
        if found:
            return lines
        if time.monotonic() > deadline_s:
            raise ConsoleError(f"{observer}/metrics: {problem}")
        time.sleep(RETRY_S)


def fetch(observer: str) -> list[str]:
    """The lines of /metrics. Raises URLError or TimeoutError."""
    with urllib.request.urlopen(f"{observer}/metrics", timeout=PATIENCE_S) as response:
        return str(response.read(), "utf-8").splitlines()
