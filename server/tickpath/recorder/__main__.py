"""`python -m tickpath.recorder SETTINGS`: started by the core, which passes its ring and the folder's lock as open
descriptors, and the rest as JSON."""

import sys

from tickpath.beside import begin


def main() -> int:
    """Runs until the core ends, or SIGTERM or SIGINT comes. Returns the exit status."""
    given = begin("tickpath.recorder", "Write a tickpath core's recording.", "tickpath.recorder.recorder.Settings")
    import msgspec

    from tickpath.logs import logging_to_stderr
    from tickpath.recorder.recorder import Settings, run

    settings = msgspec.json.decode(given, type=Settings)
    with logging_to_stderr(settings.log_format):
        return run(settings)


if __name__ == "__main__":
    sys.exit(main())
