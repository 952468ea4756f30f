"""`python -m tickpath.door`: started by the core, beside it. `tickpath door` is for people."""

import argparse
import os
import signal
import sys
from typing import Final

import msgspec

from tickpath.door.environment import prepare
from tickpath.door.settings import DoorSettings
from tickpath.logs import logging_to_stderr

# Behind whatever else wants the CPU: who comes by this door may wait, the core's own clients may not.
NICE: Final = 10

EXIT_MISSING: Final = 1
"""The door's own libraries are not installed."""
EXIT_ADDRESS: Final = 4
"""An address can't be listened on. (2 is a command line that is not understood.)"""


def main() -> int:
    """Runs until the core ends, or SIGTERM or SIGINT comes. Returns the exit status."""
    for number in (signal.SIGTERM, signal.SIGINT):  # until it serves a signal just ends it
        signal.signal(number, signal.SIG_DFL)
    parser = argparse.ArgumentParser("python -m tickpath.door", description="The Open Inference Protocol's door.")
    parser.add_argument("settings", help="DoorSettings as JSON")
    parser.add_argument("--cpus", metavar="1,2,3", help="the CPUs to run on")
    arguments = parser.parse_args()
    os.nice(NICE)
    if arguments.cpus:
        os.sched_setaffinity(0, map(int, arguments.cpus.split(",")))
    prepare()
    return _run(msgspec.json.decode(arguments.settings, type=DoorSettings))


def _run(settings: DoorSettings) -> int:
    try:
        from tickpath.door.door import DoorAddressError, print_ready, run
    except ModuleNotFoundError as missing:
        sys.stderr.write(f"tickpath door: {missing.name} is not there: pip install 'tickpath[door]'\n")
        return EXIT_MISSING
    try:
        with logging_to_stderr(settings.log_format):
            run(settings, print_ready)
    except DoorAddressError as error:
        sys.stderr.write(f"tickpath door: {error}\n")
        return EXIT_ADDRESS
    return 0


if __name__ == "__main__":
    sys.exit(main())
