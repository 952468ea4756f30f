"""`tickpath models check`: every version of a repository loaded in a child process, and told."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tickpath.console.tensors import plain_tensor
from tickpath.server.config import ConfigError, ModelConfig, ServerConfig, check_model
from tickpath.server.proof import Prover, Refused, Task, Verdict
from tickpath.server.repository import model_names, read_model, read_version, version_names

FRAME_BYTES_MAX = ServerConfig().frame_bytes_max


@dataclass(frozen=True, slots=True)
class Candidate:
    """A version to check; `found` is its configuration, or what is wrong with its folder."""

    model: str
    version: str
    live: bool
    found: ModelConfig | Refused


@dataclass(frozen=True, slots=True)
class Checked:
    """A version, and what became of loading it."""

    model: str
    version: str
    live: bool
    verdict: Verdict


def find(path: Path, every: bool) -> list[Candidate]:
    """What to check: the versions of a repository that would be loaded, or `every` one; or one model file. A model
    whose folder is not in order is among them. Raises ConfigError where there is nothing to check."""
    if path.is_dir():
        return [candidate for name in model_names(path) for candidate in _find_model(path, name, every)]
    return [_candidate(check_model(ModelConfig(str(path))))]


def check(candidates: Sequence[Candidate], nice: int, console: Console) -> list[Checked]:
    """Load each of them in a child process of this niceness, one after the other, with a progress line on a
    terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    checked = []
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with Prover(nice) as prover, progress:
        bar = progress.add_task("", total=len(candidates))
        for candidate in candidates:
            progress.update(bar, description=f"loading {candidate.model} {candidate.version}")
            found = candidate.found
            verdict = found if isinstance(found, Refused) else prover.prove(Task(found, FRAME_BYTES_MAX, rehearse=True))
            checked.append(Checked(candidate.model, candidate.version, candidate.live, verdict))
            progress.advance(bar)
    return checked


def plain(checked: Checked) -> dict[str, object]:
    """For programs: what `--json` says of a version."""
    told: dict[str, object] = {"model": checked.model, "version": checked.version, "live": checked.live}
    verdict = checked.verdict
    if isinstance(verdict, Refused):
        return told | {"refused": verdict.text}
    return told | {
        "refused": None,
        "engine": verdict.runtime,
        "precision": verdict.precision,
        "sha256": verdict.sha256,
        "inputs": [plain_tensor(tensor) for tensor in verdict.inputs],
        "outputs": [plain_tensor(tensor) for tensor in verdict.outputs],
        "buckets": verdict.buckets,
        "rows_fixed": verdict.rows_fixed,
        "compute_ns": verdict.compute_ns,
        "verified": verdict.verified,
        "not_run": verdict.not_run or None,
    }


def _find_model(folder: Path, name: str, every: bool) -> Iterator[Candidate]:
    try:
        loaded = {config.version: config for config in read_model(folder, name)}
        versions = version_names(folder, name) if every else list(loaded)
    except ConfigError as error:
        yield Candidate(name, "", False, Refused(str(error)))
        return
    for version in versions:
        try:
            yield _candidate(loaded.get(version) or read_version(folder, name, version))
        except ConfigError as error:
            yield Candidate(name, version, False, Refused(str(error)))


def _candidate(config: ModelConfig) -> Candidate:
    return Candidate(config.served_name, config.version, config.live, config)
