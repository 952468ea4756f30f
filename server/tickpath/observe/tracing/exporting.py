"""The thread that makes spans and sends them. Whatever the endpoint does, it holds up this thread alone."""

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Final

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from tickpath.observe.settings import TraceSettings
from tickpath.observe.tracing.headers import HeadersError, read_headers
from tickpath.observe.tracing.outbox import Batch, Outbox
from tickpath.observe.tracing.spans import SpanMaker

log = logging.getLogger(__name__)

# Some 900 spans, half a megabyte: collectors take 20 MB unless told otherwise.
SENT_MAX: Final = 128
# How long one request to the endpoint may take, the exporter's retries within it (after 1, 2, 4 s and so on). A
# collector that is started again is back by then; meanwhile what is new finds its room.
EXPORT_S: Final = 15.0
# One who looks at the log wants to know that it goes on, not each time.
SAID_S: Final = 60.0
# What is said is a line.
SAID_CHARS_MAX: Final = 300

# How requests and urllib3 end the story of a connection that was not made.
CAUSE: Final = re.compile(r"Failed to establish a new connection: (?:\[Errno -?\d+\] )?([^\")]+)")


class Complaint(logging.Handler):
    """Says in the log what keeps traces from leaving, once in SAID_S."""

    def __init__(self, endpoint: str, outbox: Outbox) -> None:
        super().__init__(logging.WARNING)
        self._endpoint = endpoint
        self._outbox = outbox
        self._said_s = float("-inf")

    def emit(self, record: logging.LogRecord) -> None:
        """What the exporter logs: of a failed connection, its last cause, and not all the objects around it."""
        said = record.getMessage()
        cause = CAUSE.search(said)
        self.say(f"can't reach it: {cause[1]}; retrying" if cause else said)

    def say(self, problem: str) -> None:
        """Unless something was said a short time ago."""
        now_s = time.monotonic()
        if now_s < self._said_s + SAID_S:
            return
        self._said_s = now_s
        line = " ".join(problem.split())[:SAID_CHARS_MAX]
        log.warning(
            "traces to %s: %s; %d requests dropped so far, answers are not affected; no more of this for %.0f s",
            self._endpoint,
            line,
            self._outbox.dropped,
            SAID_S,
        )


class Exporting(Thread):
    """Takes from the outbox until that is closed."""

    def __init__(self, settings: TraceSettings, outbox: Outbox, maker: SpanMaker) -> None:
        super().__init__(name="traces", daemon=True)  # nobody waits for an endpoint that hangs
        self._settings = settings
        self._outbox = outbox
        self._maker = maker
        self._complaint = Complaint(settings.endpoint, outbox)
        self._headers: dict[str, str] = {}
        self._exporter: OTLPSpanExporter | None = None
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self._complaint)
        logger.propagate = False

    def run(self) -> None:
        while (batch := self._outbox.take()) is not None:
            for part in _parts(batch):
                self._outbox.settle(len(part.records), self._export(part))

    def _export(self, batch: Batch) -> bool:
        """Whether the endpoint has it."""
        try:
            exporter = self._with_headers()
            return exporter.export(self._spans(batch)) is SpanExportResult.SUCCESS
        except HeadersError as error:
            self._complaint.say(str(error))
        except Exception as error:  # a thread that has ended would drop all that comes
            self._complaint.say(repr(error))
        return False

    def _spans(self, batch: Batch) -> list[ReadableSpan]:
        told = zip(batch.reporter.tell(batch.records, batch.now_ns), batch.slow.tolist(), strict=True)
        return [span for request, slow in told for span in self._maker.spans(request, slow, batch.offset_ns)]

    def _with_headers(self) -> OTLPSpanExporter:
        """An exporter with the headers that the file holds now."""
        file = self._settings.headers_file
        headers = {} if file is None else read_headers(Path(file))
        if self._exporter is None or headers != self._headers:
            if self._exporter is not None:
                self._exporter.shutdown()  # type: ignore[no-untyped-call]
            # Else the environment's authorities would go before those of `ca`, and a .netrc before the headers.
            session = requests.Session()
            session.trust_env = False
            self._exporter = OTLPSpanExporter(
                self._settings.endpoint, self._settings.ca, headers=headers, timeout=EXPORT_S, session=session
            )
            self._headers = headers
        return self._exporter


def _parts(batch: Batch) -> Iterator[Batch]:
    for start in range(0, len(batch.records), SENT_MAX):
        end = start + SENT_MAX
        yield Batch(batch.records[start:end], batch.slow[start:end], batch.reporter, batch.offset_ns, batch.now_ns)
