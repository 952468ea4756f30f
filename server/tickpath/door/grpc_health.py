"""gRPC's own health service, which Kubernetes' `grpc` probes and load balancers ask: the door's readiness.

Its two messages have one field each, so they are read and written here as bytes: a copy of its .proto would be refused
in a process that has another.
"""

from typing import Any, Final

import grpc

from tickpath.client import TickpathError
from tickpath.door.callers import Callers

HEALTH_SERVICE: Final = "grpc.health.v1.Health"

# HealthCheckResponse: field 1, an enum.
SERVING: Final = b"\x08\x01"
NOT_SERVING: Final = b"\x08\x02"


def health_handler(callers: Callers, service: str) -> grpc.GenericRpcHandler:
    """`Check`, of the server as a whole (no name) or of the one service that is here; whoever asks."""
    known = (b"", b"\x0a" + bytes([len(service)]) + service.encode())  # HealthCheckRequest: field 1, a string

    async def check(request: bytes, context: Any) -> bytes:
        if request not in known:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"expected no service's name, or {service}")
        try:
            await callers.ready()
        except TickpathError:
            return NOT_SERVING
        return SERVING

    return grpc.method_handlers_generic_handler(HEALTH_SERVICE, {"Check": grpc.unary_unary_rpc_method_handler(check)})
