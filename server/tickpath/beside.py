"""How a process begins that the core starts beside itself: the observer, the door, the recorder."""

import argparse
import os
import signal
from typing import Final

# Behind whatever else wants the CPU: a scrape, a file and who comes by the door may wait, a reply may not.
NICE: Final = 10


def begin(program: str, description: str, settings: str) -> str:
    """Step aside for the core, and return the JSON of the `settings` that are named on the command line of `program`.
    Ends the process with status 2 where that is not understood."""
    # Until it serves a signal just ends it: an exception out of a handler would print whatever import it came in.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    parser = argparse.ArgumentParser(f"python -m {program}", description=description)
    parser.add_argument("settings", help=f"JSON of {settings}")
    parser.add_argument("--cpus", metavar="1,2,3", help="the CPUs to run on (those that the core's own start may use)")
    arguments = parser.parse_args()
    os.nice(NICE)
    if arguments.cpus:
        os.sched_setaffinity(0, map(int, arguments.cpus.split(",")))
    return str(arguments.settings)
