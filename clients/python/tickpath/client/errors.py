"""What can go wrong for a caller. Every exception of this package is a TickpathError, and its text is one line.

TickpathError
  AddressError          the address can't be read
  CredentialsError      a token's file, a certificate or a key can't be read
  ConnectError          no connection could be opened
  ConnectionLostError   the connection ended while the request was in flight: it may have run, or not
  RequestTimeoutError   no answer came in time
  ProtocolError         the server sent what the protocol does not allow
  RefusedError          the request was refused; one subclass for each `Code`
"""

from typing import ClassVar, Final

from tickpath.wire import Code


class TickpathError(Exception):
    """Base of all that this client raises."""


class AddressError(TickpathError):
    """The address is not one of the forms that `Client` takes."""


class CredentialsError(TickpathError):
    """What this client was to show of itself, or whom it was to trust, can't be had: from its file, or by its
    function."""


class ConnectError(TickpathError):
    """No connection could be opened. Nothing was asked."""


class ConnectionLostError(TickpathError):
    """The connection ended while this request was in flight. It may have run, so it is never sent again unasked."""


class RequestTimeoutError(TickpathError):
    """No answer came in time. The connection stays usable; an answer that comes late is dropped."""


class ProtocolError(TickpathError):
    """The server sent what the protocol does not allow: the connection is closed, and the next call opens another. Or
    it describes a model in a way that makes no sense to this client: then only that model can't be asked."""


class RefusedError(TickpathError):
    """A request was refused, for the reason `code`: by the server, or by this client before anything was sent.
    `next_sequence`: what its feed takes next, where it was a tick that the server refused; else 0."""

    code: ClassVar[Code]
    next_sequence: int = 0


class BadFrameError(RefusedError):
    """The server could not take a frame's length, or it took too long to come."""

    code = Code.BAD_FRAME


class BadMessageError(RefusedError):
    """The server could not read a message."""

    code = Code.BAD_MESSAGE


class UnknownModelError(RefusedError):
    """The server has no such model."""

    code = Code.UNKNOWN_MODEL


class BadShapeError(RefusedError):
    """The inputs' names, number, shapes or rows do not fit the model."""

    code = Code.BAD_SHAPE


class BadDtypeError(RefusedError):
    """An input's dtype is not the model's."""

    code = Code.BAD_DTYPE


class BadValueError(RefusedError):
    """The right form, with a value that is not allowed, such as NaN where the model refuses it."""

    code = Code.BAD_VALUE


class DeadlineError(RefusedError):
    """The request's budget was, or would have been, over before the answer."""

    code = Code.DEADLINE


class SupersededError(RefusedError):
    """A newer request with the same key came before this one ran."""

    code = Code.SUPERSEDED


class OverloadedError(RefusedError):
    """A limit of the server is reached. Nothing was queued; it may be asked again."""

    code = Code.OVERLOADED


class NotReadyError(RefusedError):
    """The server or the model is loading, draining or has failed."""

    code = Code.NOT_READY


class CancelledError(RefusedError):
    """The request was taken back before it ran."""

    code = Code.CANCELLED


class UnauthenticatedError(RefusedError):
    """The server asks for a token, and this is not one it knows."""

    code = Code.UNAUTHENTICATED


class ForbiddenError(RefusedError):
    """The token is known but may not do this."""

    code = Code.FORBIDDEN


class FeedGapError(RefusedError):
    """A feed's sequence number is not the next one."""

    code = Code.FEED_GAP


class EngineFailedError(RefusedError):
    """The model's runtime failed; the text carries what it said."""

    code = Code.ENGINE_FAILED


class InternalError(RefusedError):
    """A fault of the server; please report it."""

    code = Code.INTERNAL


_BY_CODE: Final = {kind.code: kind for kind in RefusedError.__subclasses__()}


def refusal(code: Code, message: str, next_sequence: int = 0) -> RefusedError:
    """The exception for a refusal of this code."""
    error = _BY_CODE[code](message or code.name)
    if next_sequence:
        error.next_sequence = next_sequence
    return error


def unreachable(address: object, reason: object) -> ConnectError:
    """No connection to this address could be opened."""
    remedy = "is the server running there? `tickpath serve` starts one"
    if isinstance(reason, OSError):
        if getattr(reason, "verify_message", ""):
            remedy = "name the authority that signed it (--tls-ca, Tls(ca=...)), and the host as it stands there"
        reason = reason_of(reason)
    return ConnectError(f"can't connect to {address}: {reason}; {remedy}")


def no_welcome(address: object, error: TickpathError) -> ConnectError:
    """Something took the connection, and ended it or said nothing."""
    return ConnectError(f"can't connect to {address}: no Welcome came ({error}); {is_it(address)}")


def is_it(address: object) -> str:
    """What to ask oneself where no Welcome comes."""
    plain = (
        "" if "://" in str(address) or str(address).startswith("unix:") else f", and is it plain, not tls://{address}"
    )
    return f"is that a tickpath server{plain}?"


def reason_of(error: OSError) -> str:
    """In words. Of TLS, what its library says by a constant's name and a place in its source."""
    said = getattr(error, "verify_message", "")
    if said:
        return f"the server's certificate is refused: {said}"
    constant = getattr(error, "reason", "") or ""
    if constant in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"):
        return "it does not speak TLS there: leave tls:// out, or give the port that does"
    if constant:
        return f"TLS: {constant.replace('_', ' ').lower()}"
    return error.strerror or str(error)


def not_connected(address: object) -> ConnectError:
    """A call was made on a client that has no connection and may not open one by itself."""
    return ConnectError(f"not connected to {address}: call connect() first")


def lost(address: object, reason: object) -> ConnectionLostError:
    """The connection ended under a request."""
    return ConnectionLostError(
        f"the connection to {address} was lost: {reason}; what was in flight may have run, or not"
    )


def timed_out(address: object, timeout_s: float) -> RequestTimeoutError:
    """A request's time is over."""
    return RequestTimeoutError(f"no answer from {address} within {timeout_s:g} s")
