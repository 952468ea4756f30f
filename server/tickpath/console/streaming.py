"""`tickpath streaming`: it parses, calls and prints. What takes long to import is imported when it runs."""

from pathlib import Path

import click

from tickpath.console.endings import Failed, ModelRefused, ending
from tickpath.console.options import SHAPES

EXAMPLES = """
Examples:

\b
tickpath streaming lstm.onnx -o lstm.step.onnx
tickpath serve lstm.step.onnx

OUT takes one row and the states of the recurrent layers; its file says which output becomes which input, and how many
rows the window had. Served, its feeds answer as the window does (mode "window"), or run on from their start ("carry").

Exit code: 0 done, 3 the model is refused, with the operator at fault, 1 anything else.
"""


@click.command("streaming", epilog=EXAMPLES)
@click.argument("model", metavar="MODEL.onnx", type=Path)
@click.option("-o", "--out", required=True, metavar="OUT.onnx", type=Path, help="The step model to write.")
@click.option(
    "--axis", type=click.IntRange(0, 1), default=1, show_default=True, help="Which axis of its inputs is time."
)
@SHAPES
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def streaming(*, model: Path, out: Path, axis: int, shapes: dict[str, object] | None, force: bool) -> None:
    """Make a step model of a recurrent model over a window."""
    from tickpath.console import stepping
    from tickpath.console.errors import ConsoleError
    from tickpath.engines import ModelRefusedError

    if out.suffix != ".onnx":
        raise Failed(f"{out}: name a .onnx file")
    if out.exists() and not force:
        raise Failed(f"{out} is there already: give another name, or --force to write over it")
    with ending(ModelRefused, ModelRefusedError), ending(Failed, ConsoleError):
        click.echo(stepping.run(model, out, shapes or {}, axis))
