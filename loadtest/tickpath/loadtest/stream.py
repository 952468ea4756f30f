"""One sender: a connection, a schedule, one request at a time. Runs as a process of its own, so that nothing else
delays it.

    python -m tickpath.loadtest.stream PLAN.json

A request that can't leave at its intended time because the one before is not answered leaves late, and its latency
counts from the intended time all the same: a slow answer is charged to every request that it held up.
"""

import gc
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from tickpath.client import Client, TickpathError
from tickpath.loadtest.orderbook import windows
from tickpath.loadtest.pace import wait_until
from tickpath.loadtest.samples import Samples
from tickpath.loadtest.schedule import Constant

# Between the end of the warm-up and the first request that counts.
LEAD_NS = 1_000_000
# How long after the last intended time requests still leave: a stall is made good and counted; a server that can't
# keep up is not waited for.
OVERRUN_NS = 1_000_000_000

Inputs = dict[str, npt.NDArray[np.generic]]


class Plan(msgspec.Struct, frozen=True):
    """What to send where: `count` requests of one row at `rate_hz`, after `warmup` that are not measured; inputs from
    the book of `seed`; what is measured goes to the file `samples`, which exists and has room for `count`."""

    address: str
    model: str
    samples: str
    rate_hz: float
    count: int
    warmup: int = 200
    seed: int = 1


def run(plan: Plan) -> None:
    """Send it all, and write down each answer as it comes. Raises TickpathError."""
    samples = Samples.open(Path(plan.samples))
    with Client(plan.address) as client:
        books = _books(client, plan)
        for tick in range(plan.warmup):
            client.infer(plan.model, _inputs(books, tick % plan.count))
        gc.freeze()
        gc.disable()
        _send(client, plan, books, samples)


def _send(client: Client, plan: Plan, books: Inputs, samples: Samples) -> None:
    offsets_ns = Constant(plan.rate_hz, plan.count / plan.rate_hz).offsets_ns()
    times = (time.monotonic_ns() + LEAD_NS + offsets_ns).tolist()
    last_ns = times[-1] + OVERRUN_NS
    for tick, intended_ns in enumerate(times):
        inputs = _inputs(books, tick)
        sent_ns = wait_until(intended_ns)
        if sent_ns > last_ns:
            return
        prediction = client.infer(plan.model, inputs)
        samples.record(tick, intended_ns, sent_ns, time.monotonic_ns(), prediction.stamps)


def _books(client: Client, plan: Plan) -> Inputs:
    needed = (tensor for tensor in client.model(plan.model).inputs if not tensor.optional)
    return {tensor.name: windows(plan.count, tensor.shape, tensor.dtype, plan.seed) for tensor in needed}


def _inputs(books: Inputs, tick: int) -> Inputs:
    return {name: book[tick] for name, book in books.items()}


def main() -> None:
    """Run the plan that the first argument names; a failure is one line on stderr and exit code 1."""
    try:
        run(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan))
    except TickpathError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
