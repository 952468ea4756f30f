"""What each knob does, beside its default, interleaved in one run.

    python -m bench.tuning
    python -m bench.tuning --knobs waiting,cpu --rounds 9
    python -m bench.tuning --write docs/TUNING.md      puts the tables where they stand there

All servers are started first, and are stopped (SIGSTOP) but while they are asked. In each round each knob's variants
are asked one after the other, the first one, which is the default, among them; the order turns round after each, so
that a noisy machine disturbs all alike. A ratio is taken within a round.
"""

import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
import numpy as np
import numpy.typing as npt
from rich.progress import track

from bench.report import machine
from bench.targets import FLOOR
from bench.tuning.knobs import KNOBS, Knob
from bench.tuning.servers import NotHereError, Server, start
from bench.tuning.table import load, table, write

# lstm_a takes ten times as long as mlp.
SAMPLES_SHARE: Final = {"mlp": 1, "lstm_a": 5}
PROCESSORS_MIN: Final = 2


@click.command()
@click.option("--knobs", "names", help="Names, with commas between.  [default: all]")
@click.option("--rounds", default=7, show_default=True, help="Rounds; in each, every variant is measured once.")
@click.option("--samples", default=2000, show_default=True, help="Round trips a variant and round; of lstm_a a fifth.")
@click.option("--write", "text", type=click.Path(exists=True, path_type=Path), help="Put the tables into this text.")
def main(names: str | None, rounds: int, samples: int, text: Path | None) -> None:
    """Measure what each knob does to a round trip. Takes some three minutes on a quiet machine."""
    chosen = _chosen(names)
    if len(os.sched_getaffinity(0)) < PROCESSORS_MIN:
        raise click.ClickException("two processors expected, one for the server and one for its client; there is one")
    if not FLOOR.exists():
        raise click.ClickException(f"{FLOOR} is the client, and is not there: `make {FLOOR}`")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # servers that are stopped must not stay
    before = load()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bench = _Bench(stack, Path(folder))
        for knob in track(chosen, description="starting", disable=not sys.stderr.isatty()):
            bench.add(knob)
        for number in track(range(rounds), description="rounds", disable=not sys.stderr.isatty()):
            bench.round(chosen, samples, backwards=bool(number % 2))
    blocks = {knob.name: bench.table(knob) for knob in chosen}
    about = f"{rounds} rounds of {samples:,}; load average {before} before, {load()} after"
    told = "; ".join([*machine().splitlines(), about])
    for name, block in {"machine": told, **blocks}.items():
        print(f"{name}\n\n{block}\n")
    if text is not None:
        write(text, {"machine": f"{told}."} | blocks)


def _chosen(names: str | None) -> list[Knob]:
    known = {knob.name: knob for knob in KNOBS}
    if names is None:
        return list(KNOBS)
    if unknown := [name for name in names.split(",") if name not in known]:
        raise click.BadParameter(f"no knob {unknown[0]!r}; there are {', '.join(known)}", param_hint="--knobs")
    return [known[name] for name in names.split(",")]


class _Bench:
    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._servers: dict[tuple[str, str], Server | NotHereError] = {}
        self._taken: dict[tuple[str, str], list[npt.NDArray[np.int64]]] = {}

    def add(self, knob: Knob) -> None:
        """Start what none of the knobs before has started."""
        for variant in knob.variants:
            key = (knob.zoo, variant.served)
            if key not in self._servers:
                place = self._folder / str(len(self._servers))
                try:
                    self._servers[key] = start(self._stack, variant, knob.zoo, place)
                except NotHereError as error:
                    self._servers[key] = error

    def round(self, knobs: list[Knob], samples: int, backwards: bool) -> None:
        """Every variant of every knob once."""
        for knob in knobs:
            for variant in knob.variants[:: -1 if backwards else 1]:
                server = self._servers[knob.zoo, variant.served]
                if isinstance(server, Server):
                    taken = server.ask(knob.client, variant, samples // SAMPLES_SHARE[knob.zoo])
                    self._taken.setdefault((knob.name, variant.name), []).append(taken)

    def table(self, knob: Knob) -> str:
        """As Markdown."""
        missing = {
            variant.name: str(error)
            for variant in knob.variants
            if isinstance(error := self._servers[knob.zoo, variant.served], NotHereError)
        }
        measured = {name: rounds for (of, name), rounds in self._taken.items() if of == knob.name}
        return table(knob, measured, missing)


if __name__ == "__main__":
    main()
