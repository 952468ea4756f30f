"""`python -m tickpath.observe`: started by the core, which passes its shared memory as an open descriptor."""

import argparse
import os
import signal
import socket
import sys
from typing import Final

# Behind whatever else wants the CPU: a scrape may wait, a reply may not.
NICE: Final = 10


def main() -> int:
    """Runs until the core ends, or SIGTERM or SIGINT comes. Returns 0, or one of `observer`'s exit statuses
    after a line on stderr."""
    # Until it serves a signal just ends it: an exception out of a handler would print whatever import it came in.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    arguments = _parser().parse_args()
    os.nice(NICE)
    if arguments.cpus:
        os.sched_setaffinity(0, map(int, arguments.cpus.split(",")))
    # One thread is all the arithmetic here; OpenBLAS would start one for every core as numpy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from tickpath.observe.observer import run
    from tickpath.observe.settings import ObserverSettings, TraceSettings

    trace = None
    if arguments.trace_endpoint:
        trace = TraceSettings(
            arguments.trace_endpoint,
            arguments.trace_headers_file,
            arguments.trace_ca,
            arguments.trace_sample,
            arguments.trace_slow,
        )
    settings = ObserverSettings(
        arguments.host, arguments.port, arguments.name, arguments.token_file, arguments.triton_names, trace
    )
    return run(arguments.records_fd, arguments.tally_fd, settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tickpath.observe", description="Serve a tickpath core's metrics and health."
    )
    parser.add_argument("--records-fd", type=int, required=True, help="descriptor of the core's shared memory")
    parser.add_argument("--tally-fd", type=int, help="descriptor of memory in which its counts outlive it")
    parser.add_argument("--name", default=socket.gethostname(), help="what the server is called (%(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=9090, help="port to listen on, 0 for a free one (%(default)s)")
    parser.add_argument("--token-file", metavar="FILE", help="tokens, one of which a scrape must bring")
    parser.add_argument("--cpus", metavar="1,2,3", help="the CPUs to run on (those that the core's own start may use)")
    parser.add_argument("--triton-names", action="store_true", help="say what Triton has names for by those, too")
    parser.add_argument("--trace-endpoint", metavar="URL", help="where traces go, as OTLP over HTTP (nowhere)")
    parser.add_argument("--trace-headers-file", metavar="FILE", help="headers that go with them")
    parser.add_argument("--trace-ca", metavar="FILE.pem", help="authorities of the endpoint (the system's)")
    parser.add_argument(
        "--trace-sample", metavar="SHARE", type=float, default=0.0, help="of all requests (%(default)s)"
    )
    parser.add_argument("--trace-slow", metavar="MS", default="p99.9", help='or "p99.9", or "off" (%(default)s)')
    return parser


if __name__ == "__main__":
    sys.exit(main())
