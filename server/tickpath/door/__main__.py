"""`python -m tickpath.door SETTINGS`: started by the core, beside it. `tickpath door` is for people."""

import logging
import sys
from typing import Final

import msgspec

from tickpath.beside import begin
from tickpath.door.environment import prepare
from tickpath.door.settings import DoorSettings
from tickpath.logs import logging_to_stderr

log = logging.getLogger(__name__)

EXIT_MISSING: Final = 1
"""The door's own libraries are not installed."""
EXIT_ADDRESS: Final = 4
"""An address can't be listened on. (2 is a command line that is not understood.)"""


def main() -> int:
    """Runs until the core ends, or SIGTERM or SIGINT comes. Returns the exit status."""
    given = begin("tickpath.door", "The Open Inference Protocol's door.", "tickpath.door.settings.DoorSettings")
    prepare()
    settings = msgspec.json.decode(given, type=DoorSettings)
    with logging_to_stderr(settings.log_format):
        return _run(settings)


def _run(settings: DoorSettings) -> int:
    try:
        from tickpath.door.door import DoorAddressError, print_ready, run
    except ModuleNotFoundError as missing:
        log.error("the door: %s is not there: pip install 'tickpath[door]'", missing.name)
        return EXIT_MISSING
    try:
        run(settings, print_ready)
    except DoorAddressError as error:
        log.error("the door: %s", error)
        return EXIT_ADDRESS
    return 0


if __name__ == "__main__":
    sys.exit(main())
