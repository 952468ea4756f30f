"""Process 1 of a container, where no other is: it has the server run as its child, passes signals on, and takes in
what orphans leave.

A fork of the prover whose parent was killed (for memory, say) becomes a child of process 1 and stays a zombie until
that waits for it. The core can't: to wait for any child would take the exit codes of its own from those who wait.
"""

import os
import signal
from typing import Final

FIRST: Final = 1
# What a container's manager or a terminal may send. The others end or stop the process that they are sent to.
PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def run_as_child() -> int | None:
    """Go on in a child, as long as that lives, where this is process 1. Returns None in whoever is to be the server,
    and the server's exit code in process 1: 128 and the signal's number where one killed it.

    Called while there is one thread, before anything is opened.
    """
    if os.getpid() != FIRST:
        return None
    waited_for = {signal.SIGCHLD, *PASSED_ON}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    server = os.fork()
    if server == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return None
    while True:
        number = signal.sigwait(waited_for)
        if number != signal.SIGCHLD:
            os.kill(server, number)
        elif (code := _take_in(server)) is not None:
            return code


def _take_in(server: int) -> int | None:
    """Wait for all that have ended; the server's exit code, if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == server:
            ended = os.waitstatus_to_exitcode(status)
            code = ended if ended >= 0 else 128 - ended
