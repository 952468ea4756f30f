"""`tickpath compile`: it parses, calls and prints. What takes long to import is imported when it runs."""

from pathlib import Path

import click

from tickpath.console.endings import Misconfigured, ModelRefused, ending
from tickpath.console.options import SHAPES, read_buckets, read_targets
from tickpath.console.streaming import streaming as streaming_command

COMPILE_EXAMPLES = """
Examples:

\b
tickpath compile model.onnx -o model.plan
tickpath compile model.onnx -o model.plan --engine tensorrt-rtx --gpu sm89,sm120 --precision fp16
tickpath compile model.onnx -o optimised.onnx --engine onnxruntime
tickpath compile model.pt2 -o models/btc/8/model.plan
tickpath compile lstm.onnx -o lstm.step.onnx --streaming

Beside OUT stands OUT.json, which says what OUT was made of. What is there and up to date is not made again.

Exit code: 0 done, 2 what was asked for can't be, 3 the model is refused, 130 after Ctrl-C, 1 anything else.
"""


@click.command("compile", epilog=COMPILE_EXAMPLES)
@click.argument("model", metavar="MODEL", type=Path)
@click.option(
    "-o", "--out", required=True, metavar="OUT", type=Path, help="What to write: a .plan, .onnx, .ov or .pt2."
)
@click.option(
    "--engine",
    type=click.Choice(["tensorrt", "tensorrt-rtx", "onnxruntime", "openvino", "torch"]),
    help="What builds it.  [default: by OUT, the TensorRT that is installed]",
)
@click.option("--buckets", callback=read_buckets, metavar="1,2,8", help="Batch sizes to build for.  [default: 1,2,4,8]")
@click.option("--precision", type=click.Choice(["fp32", "tf32", "fp16", "bf16"]), help="[default: fp32]")
@click.option(
    "--gpu",
    "targets",
    callback=read_targets,
    metavar="sm89,sm120",
    help="GPUs to build for.  [default: the runtime's]",
)
@SHAPES
@click.option("--optimization-level", type=click.IntRange(0, 5), metavar="0-5", help="[default: 5]")
@click.option(
    "--timing-iterations", type=click.IntRange(1, 64), metavar="N", help="Runs to time a kernel.  [default: 8]"
)
@click.option(
    "--aux-streams", type=click.IntRange(0, 7), metavar="N", help="Streams beside the main one.  [default: 0]"
)
@click.option("--timing-cache", type=Path, metavar="FILE", help="Keep kernels' times here from build to build.")
@click.option("--streaming", is_flag=True, help="Write a recurrent model's step model, as `tickpath streaming` does.")
@click.option("--trust", "trusted", is_flag=True, help="MODEL's maker may run code here: for .pt2 files that do.")
@click.option("--force", is_flag=True, help="Build it again, though it is up to date.")
@click.pass_context
def compile_(
    context: click.Context,
    /,
    *,
    model: Path,
    out: Path,
    timing_cache: Path | None,
    force: bool,
    streaming: bool,
    **options: object,
) -> None:
    """Compile a model file for a GPU or for this CPU.

    MODEL is an .onnx or .pt2 file.
    """
    if streaming:
        shapes = options.pop("shapes")
        if timing_cache or any(value is not None and value is not False for value in options.values()):
            raise click.UsageError(
                "--streaming goes with --shape and --force alone: what it writes can be compiled then"
            )
        context.invoke(streaming_command, model=model, out=out, shapes=shapes, force=force)
        return
    import signal

    from tickpath.console import compiling
    from tickpath.console.errors import ConsoleError
    from tickpath.engines import ModelRefusedError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the builder is to end with us
    asked = {name: value for name, value in options.items() if value is not None}
    with ending(ModelRefused, ModelRefusedError), ending(Misconfigured, ConsoleError):
        compiled = compiling.run(model, out, asked, timing_cache, force)
    click.echo(compiling.describe(compiled))
