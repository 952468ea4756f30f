"""A collector of traces: OTLP over HTTP on a real socket, decoded by OpenTelemetry's own messages."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

PATH = "/v1/traces"


@dataclass
class Collector:
    """What came. `status`: what it answers; `answering`: while it is not set, nobody is answered."""

    url: str
    status: int = 200
    answering: Event = field(default_factory=Event)
    asked: Event = field(default_factory=Event)
    headers: list[Message] = field(default_factory=list)
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.removesuffix(PATH).rpartition(":")[2])

    def traces(self) -> dict[bytes, list[Span]]:
        """The spans that came, by trace, in their order."""
        found: dict[bytes, list[Span]] = {}
        for request in list(self.requests):
            for of_resource in request.resource_spans:
                for of_scope in of_resource.scope_spans:
                    for span in of_scope.spans:
                        found.setdefault(span.trace_id, []).append(span)
        return found

    def request_ids(self) -> set[str]:
        """The ids of the requests whose traces came."""
        return {values(spans[0].attributes)["tickpath.request_id"] for spans in self.traces().values()}


def values(attributes: Any) -> dict[str, Any]:
    """Attributes as Python's values."""
    pairs: list[KeyValue] = list(attributes)
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in pairs}


@contextmanager
def collecting(port: int = 0, certificate: tuple[str, str] | None = None) -> Iterator[Collector]:
    """A collector until the end of the block. `certificate`: paths of one and of its key, for TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.asked.set()
            collector.answering.wait()
            if self.path != PATH or self.headers["Content-Type"] != "application/x-protobuf":
                self.send_error(404)
                return
            collector.headers.append(self.headers)
            if collector.status == 200:
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(collector.status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    collector = Collector(f"{scheme}://127.0.0.1:{server.server_address[1]}{PATH}")
    collector.answering.set()
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        collector.answering.set()
        server.shutdown()
        server.server_close()
        thread.join()
