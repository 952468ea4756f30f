"""Why something is refused, as HTTP and gRPC say it."""

from http import HTTPStatus
from typing import Final

from grpc import StatusCode

from tickpath.client import ConnectError, ConnectionLostError, RefusedError, RequestTimeoutError, TickpathError
from tickpath.wire import Code

_STATUSES: Final = {
    Code.BAD_FRAME: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, StatusCode.RESOURCE_EXHAUSTED),
    Code.BAD_MESSAGE: (HTTPStatus.BAD_REQUEST, StatusCode.INVALID_ARGUMENT),
    Code.UNKNOWN_MODEL: (HTTPStatus.NOT_FOUND, StatusCode.NOT_FOUND),
    Code.BAD_SHAPE: (HTTPStatus.BAD_REQUEST, StatusCode.INVALID_ARGUMENT),
    Code.BAD_DTYPE: (HTTPStatus.BAD_REQUEST, StatusCode.INVALID_ARGUMENT),
    Code.BAD_VALUE: (HTTPStatus.BAD_REQUEST, StatusCode.INVALID_ARGUMENT),
    Code.DEADLINE: (HTTPStatus.GATEWAY_TIMEOUT, StatusCode.DEADLINE_EXCEEDED),
    Code.SUPERSEDED: (HTTPStatus.CONFLICT, StatusCode.ABORTED),
    Code.OVERLOADED: (HTTPStatus.SERVICE_UNAVAILABLE, StatusCode.UNAVAILABLE),
    Code.NOT_READY: (HTTPStatus.SERVICE_UNAVAILABLE, StatusCode.UNAVAILABLE),
    Code.CANCELLED: (HTTPStatus.SERVICE_UNAVAILABLE, StatusCode.CANCELLED),
    Code.UNAUTHENTICATED: (HTTPStatus.UNAUTHORIZED, StatusCode.UNAUTHENTICATED),
    Code.FORBIDDEN: (HTTPStatus.FORBIDDEN, StatusCode.PERMISSION_DENIED),
    Code.FEED_GAP: (HTTPStatus.CONFLICT, StatusCode.FAILED_PRECONDITION),
    Code.ENGINE_FAILED: (HTTPStatus.INTERNAL_SERVER_ERROR, StatusCode.INTERNAL),
    Code.INTERNAL: (HTTPStatus.INTERNAL_SERVER_ERROR, StatusCode.INTERNAL),
}


def code_of(error: TickpathError) -> Code:
    """The reason in the protocol's words; a core that can't be reached is one that is not ready."""
    match error:
        case RefusedError():
            return error.code
        case ConnectError() | ConnectionLostError():
            return Code.NOT_READY
        case RequestTimeoutError():
            return Code.DEADLINE
    return Code.INTERNAL


def http_status(error: TickpathError) -> HTTPStatus:
    """What REST answers."""
    return _STATUSES[code_of(error)][0]


def grpc_status(error: TickpathError) -> StatusCode:
    """What gRPC answers."""
    return _STATUSES[code_of(error)][1]
