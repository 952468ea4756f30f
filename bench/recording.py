"""What a recording costs a request: a server that records beside one that does not, asked in turn.

    python -m bench.recording [ROUNDS]

A bare client asks one request at a time, then many at once, whose time is shared among them. Each round asks both
servers both, the order turned round after each, so that a noisy machine disturbs all alike.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from bench.feeds import Peer
from tickpath.console.server_process import server_process
from tickpath.engines.zoo import build
from tickpath.wire import ClientMessage, Infer, Result

MODELS: Final = {"mlp": (1, 64), "deeplob": (1, 100, 40)}
ALONE: Final = 300
BURSTS: Final = 20
BURST: Final = 32  # in_flight_max


class Asked:
    """One server, and requests for each of its models."""

    def __init__(self, address: str) -> None:
        self._peer = Peer(address)
        self._requests: dict[str, list[ClientMessage]] = {
            name: [
                Infer(number, self._peer.handles[name], 1, [memoryview(np.zeros(shape, np.float32).tobytes())])
                for number in range(1, 1 + BURST)
            ]
            for name, shape in MODELS.items()
        }

    def alone_ns(self, name: str) -> float:
        """A round trip: the median of some."""
        request, times_ns = self._requests[name][0], []
        for _ in range(ALONE):
            start_ns = time.monotonic_ns()
            assert isinstance(self._peer.ask(request), Result)
            times_ns.append(time.monotonic_ns() - start_ns)
        return median(times_ns)

    def burst_ns(self, name: str) -> float:
        """A request among many that are in flight: the median of some bursts."""
        times_ns = []
        for _ in range(BURSTS):
            start_ns = time.monotonic_ns()
            for request in self._requests[name]:
                self._peer.send(request)
            for _ in range(BURST):
                assert isinstance(self._peer.receive(), Result)
            times_ns.append((time.monotonic_ns() - start_ns) / BURST)
        return median(times_ns)


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, Asked]]:
    """One that records nothing, and one that does."""
    repository = folder / "models"
    for name in MODELS:
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1" / "model.onnx").write_bytes(build(name).SerializeToString())
    with ExitStack() as stack:
        found = {}
        for kind, flags in (("off", []), ("on", ["--record", str(folder / "recording")])):
            ready = stack.enter_context(server_process(repository, folder / f"{kind}.log", *flags))
            found[kind] = Asked(ready.address)
        yield found


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 41
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder)) as asked:
        seen: dict[tuple[str, str, str], list[float]] = {}
        for number in range(rounds):
            kinds = list(asked.items())[:: 1 if number % 2 else -1]
            for name in MODELS:
                for kind, one in kinds:
                    seen.setdefault((name, "alone", kind), []).append(one.alone_ns(name))
                for kind, one in kinds:
                    seen.setdefault((name, "in bursts", kind), []).append(one.burst_ns(name))
    print(
        f"{rounds} rounds; µs a request, medians; the ratio within a round: its median, and the middle half of rounds"
    )
    print("| model | asked | off | on | on / off |\n|---|---|---|---|---|")
    for name in MODELS:
        for how in ("alone", "in bursts"):
            off, on = (np.array(seen[name, how, kind]) for kind in ("off", "on"))
            low, middle, high = np.quantile(on / off, (0.25, 0.5, 0.75))
            times = f"{median(off) / 1e3:,.1f} | {median(on) / 1e3:,.1f}"
            print(f"| {name} | {how} | {times} | {middle:.3f} ({low:.3f}-{high:.3f}) |")


if __name__ == "__main__":
    main()
