"""`python -m tickpath.recorder SETTINGS`: started by the core, which passes its ring and the folder's lock as open
descriptors, and the rest as JSON."""

import argparse
import os
import signal
import sys
from typing import Final

# Behind whatever else wants the CPU: a file may wait, a reply may not.
NICE: Final = 10


def main() -> int:
    """Runs until the core ends, or SIGTERM or SIGINT comes. Returns the exit status."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    arguments = _parser().parse_args()
    os.nice(NICE)
    if arguments.cpus:
        os.sched_setaffinity(0, map(int, arguments.cpus.split(",")))
    import msgspec

    from tickpath.logs import logging_to_stderr
    from tickpath.recorder.recorder import Settings, run

    settings = msgspec.json.decode(arguments.settings, type=Settings)
    with logging_to_stderr(settings.log_format):
        return run(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tickpath.recorder", description="Write a tickpath core's recording.")
    parser.add_argument("settings", help="JSON of tickpath.recorder.recorder.Settings")
    parser.add_argument("--cpus", metavar="1,2,3", help="the CPUs to run on (those that the core's own start may use)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
