"""Where clients connect: TCP and Unix sockets, opened before anything slow is done, so that a taken address fails at
once."""

import errno
import os
import shutil
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

# Connections that may wait to be accepted while the loop computes: a whole desk reconnecting at the same moment.
BACKLOG = 1024

# A desk whose host has lost its power says nothing more, and its sessions must not be held for it for ever: silent for
# 30 s, then asked every 10 s, gone after three questions; what was sent to it is waited for as long. Connections
# inherit this from the listener.
KEEPALIVE = {
    socket.TCP_KEEPIDLE: 30,
    socket.TCP_KEEPINTVL: 10,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 60_000,
}


# Who may connect to a Unix socket, unless told otherwise.
OWNER_ALONE: Final = 0o600
GROUP_TOO: Final = 0o660

# What to do about it. {host} and {port}: where the two are set.
_TCP_REMEDIES: Final = {
    errno.EADDRINUSE: "stop what uses it, or give another {port}",
    errno.EADDRNOTAVAIL: "give an address of this machine with {host}",
    errno.EACCES: "this user may not have that port: give another {port}",
}
_UNIX_REMEDIES: Final = {
    errno.EADDRINUSE: "stop what uses it, or give another {option}",
    errno.ENOENT: "make its folder first",
    errno.EACCES: "give a {option} where this user may write",
}
_NO_HOST: Final = "give {host} an address or a name of this machine"


class AddressError(Exception):
    """The address can't be listened on. The text names it and says what to do."""


def listen_tcp(host: str, port: int, host_from: str = "--host", port_from: str = "--port") -> socket.socket:
    """A listening socket on host:port (0: a free port). Restarts at once after a stop, never shares a port. Raises
    AddressError, which says what to do with the options named."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:  # UnicodeError: no host name can be like this one
        number = isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno
        remedy = _TCP_REMEDIES.get(number, "give another {port}") if number else _NO_HOST
        raise _address_error(f"{host}:{port}", error, remedy.format(host=host_from, port=port_from)) from None
    for option, value in KEEPALIVE.items():
        listener.setsockopt(socket.IPPROTO_TCP, option, value)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setblocking(False)
    return listener


def listen_unix(path: Path, option: str = "--uds", mode: int = OWNER_ALONE, group: str | None = None) -> socket.socket:
    """A listening Unix socket. One left behind by a server that is gone is replaced; anything else there is an error.
    `mode`, `group`: who may connect; the file never has more permissions, and nobody can connect before it is all set.
    Raises AddressError, which says what to do with the option named."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_left_behind(path):
            path.unlink(missing_ok=True)
        _bind(listener, path, mode, group)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if path.exists() and not path.is_socket():
            raise AddressError(
                f"can't listen on {path}: it is a {'folder' if path.is_dir() else 'file'}, not a socket; give another "
                f"{option}"
            ) from None
        remedy = _UNIX_REMEDIES.get(error.errno or 0, "give another {option}").format(option=option)
        raise _address_error(str(path), error, remedy) from None
    listener.setblocking(False)
    return listener


def _bind(listener: socket.socket, path: Path, mode: int, group: str | None) -> None:
    mask = os.umask(0o777 & ~OWNER_ALONE)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    try:
        if group is not None:
            shutil.chown(path, group=group)
        path.chmod(mode)
    except (LookupError, OSError) as error:
        path.unlink()
        reason = "there is no such group" if isinstance(error, LookupError) else (error.strerror or str(error))
        raise AddressError(
            f"can't give {path} to group {group} with mode {mode:04o}: {reason}; give another uds_group, one that this "
            "user belongs to"
        ) from None


def _address_error(address: str, error: Exception, remedy: str) -> AddressError:
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    reason = reason.partition(" (while attempting")[0]  # socket.create_server says the address a second time
    return AddressError(f"can't listen on {address}: {reason}; {remedy}")


def _is_left_behind(path: Path) -> bool:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a server that stands still, its backlog full, would have us wait
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def remove_file(path: Path, inode: int) -> None:
    """Remove a Unix socket's file, unless another server has put its own there meanwhile. While we listen, no other
    file can get our inode."""
    with suppress(OSError):
        if path.stat().st_ino == inode:
            path.unlink()


def address_of(listener: socket.socket) -> str:
    """`host:port`, `[host]:port` for IPv6, or `unix:/path`: what a client is given to connect to."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name}"
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
