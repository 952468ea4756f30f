"""`tickpath models`: what a server serves, and what a repository holds. The commands parse, call and print; what takes
long to import is imported when one runs."""

from pathlib import Path

import click

from tickpath.console.endings import Failed, Misconfigured, ModelRefused, ending
from tickpath.console.options import credentials
from tickpath.console.output import print_json, print_rich
from tickpath.loadtest.command import AT

LIST = "list"


class _Models(click.Group):
    """A group whose first word may be left out: `tickpath models` lists."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        left_out = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, [LIST, *args] if left_out else args)


EXAMPLES = """
Examples:

\b
tickpath models
tickpath models --at unix:/run/tickpath.sock --json
tickpath models check models/
"""


@click.group(cls=_Models, epilog=EXAMPLES)
def models() -> None:
    """What a server serves, or a folder holds.

    `tickpath models` is `tickpath models list`.
    """


@models.command(LIST)
@AT
@credentials
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_models(address: str, as_json: bool, **shown: str | None) -> None:
    """List what a server serves."""
    from tickpath.client import TickpathError
    from tickpath.console.connecting import connect
    from tickpath.console.tensors import plain_model

    with ending(Failed, TickpathError), connect(address, **shown) as client:
        served = client.models()
    if as_json:
        print_json([plain_model(model) for model in served])
        return

    from tickpath.console.tables import models_table

    print_rich(models_table(served))


@models.command(
    epilog="Exit code: 0 all can be served, 3 a version is refused, 2 there is nothing to check, 1 anything else."
)
@click.argument("path", metavar="FOLDER|MODEL.onnx", type=Path)
@click.option("--all", "every", is_flag=True, help="Every version there is, not only those that would be loaded.")
@click.option(
    "--nice",
    type=click.IntRange(0, 19),
    default=19,
    show_default=True,
    metavar="N",
    help="How far behind everything else; 0 for timings that only a busy machine disturbs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(path: Path, every: bool, nice: int, as_json: bool) -> None:
    """Load, verify and time every model of FOLDER, and serve none.

    Each version is loaded in a process of its own, so one that kills its runtime is refused like any other.
    """
    from rich.console import Console

    from tickpath.console import checking
    from tickpath.console.tables import check_table
    from tickpath.server.config import ConfigError
    from tickpath.server.proof import Proven, Refused

    with ending(Misconfigured, ConfigError):
        candidates = checking.find(path, every)
    checked = checking.check(candidates, nice, Console(stderr=True))
    refused = {f"{item.model} {item.version}": item.verdict for item in checked if isinstance(item.verdict, Refused)}
    if as_json:
        print_json([checking.plain(item) for item in checked])
    else:
        print_rich(check_table(checked))
        for item in checked:
            if isinstance(item.verdict, Proven) and item.verdict.not_run:
                click.echo(f"{item.model} {item.version}: {item.verdict.not_run}")
        for name, verdict in refused.items():
            click.echo(f"{name.strip()} is refused: {verdict.text}")
    if refused:
        raise ModelRefused(f"{path}: {len(refused)} of {len(checked)} can't be served")
