"""`python -m tickpath.observe SETTINGS`: started by the core, which passes its shared memory as open descriptors, and
the rest as JSON."""

import os
import sys

from tickpath.beside import begin


def main() -> int:
    """Runs until the core ends, or SIGTERM or SIGINT comes. Returns 0, or one of `observer`'s exit statuses
    after a line on stderr."""
    given = begin(
        "tickpath.observe", "Serve a tickpath core's metrics and health.", "tickpath.observe.settings.ObserverSettings"
    )
    # One thread is all the arithmetic here; OpenBLAS would start one for every core as numpy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import msgspec

    from tickpath.logs import logging_to_stderr
    from tickpath.observe.observer import run
    from tickpath.observe.settings import ObserverSettings

    settings = msgspec.json.decode(given, type=ObserverSettings)
    with logging_to_stderr(settings.log_format):
        return run(settings)


if __name__ == "__main__":
    sys.exit(main())
