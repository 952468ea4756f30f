"""Who records in a folder: whoever has a lock on a file there. A file that was removed locks nothing, so it is looked
at again and again whether the one that is there is still ours."""

import errno
import fcntl
import logging
import os
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

LOCK_FILE: Final = "lock"
FILE_MODE: Final = 0o600


def open_lock(folder: Path) -> int:
    """A descriptor of the folder's file, not locked yet. Raises OSError."""
    return os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)


def take(descriptor: int) -> None:
    """Lock it. Raises BlockingIOError where another has it."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FolderLock:
    """Of a recorder, whose core has locked the file that `descriptor` is of."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self._folder = folder
        self._descriptor = descriptor
        self._is_own = False  # the core's is the core's to close

    def keep(self) -> None:
        """Have the folder that is there now, also where the one that was locked is gone. Raises OSError: there is none,
        or (EBUSY) another server has it."""
        if self._is_in_place():
            return
        descriptor = open_lock(self._folder)
        try:
            take(descriptor)
        except OSError as error:
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise
            why = "another server records there, since the folder or its lock was removed"
            raise OSError(errno.EBUSY, why, str(self._folder)) from None
        if self._is_own:
            os.close(self._descriptor)
        self._descriptor, self._is_own = descriptor, True
        log.warning("%s, or its lock, was removed: the folder that is there now is locked", self._folder)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), (self._folder / LOCK_FILE).lstat())
        except OSError:
            return False
