"""`tickpath golden`: writes the sample by which later versions of a model are verified."""

from pathlib import Path

import click

from tickpath.console.endings import Failed, ModelRefused, ending
from tickpath.console.options import SHAPES

EXAMPLES = """
Examples:

\b
tickpath golden models/btc/1/model.onnx
tickpath golden btc.onnx --from rows.npz -o models/btc/2/golden.npz

Exit code: 0 it is written, 3 the model or the rows are refused, 1 anything else.
"""


@click.command(epilog=EXAMPLES)
@click.argument("model", metavar="MODEL.onnx", type=Path)
@click.option("--rows", type=click.IntRange(1, 65536), default=8, show_default=True, help="Rows drawn from a seed.")
@click.option("--from", "rows_file", metavar="ROWS.npz", type=Path, help="Rows of yours: an array for each input.")
@SHAPES
@click.option("-o", "--out", metavar="FILE.npz", type=Path, help="[default: golden.npz beside the model]")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def golden(
    *, model: Path, rows: int, rows_file: Path | None, shapes: dict[str, object] | None, out: Path | None, force: bool
) -> None:
    """Write down what a model that you trust answers.

    Beside a version of that model, it is what a load is verified by.
    """
    from tickpath.engines import EngineFailedError, ModelRefusedError
    from tickpath.engines.load import load
    from tickpath.server.config import ConfigError, ModelConfig, convert
    from tickpath.server.golden import GOLDEN_FILE, read_inputs, write_golden
    from tickpath.server.verification import make_golden, seeded_inputs

    out = out or model.with_name(GOLDEN_FILE)
    if out.exists() and not force:
        raise Failed(f"{out} is there already: give another name with -o, or --force to write over it")
    with ending(ModelRefused, ModelRefusedError, EngineFailedError), ending(Failed, ConfigError):
        config = convert({"path": str(model), "shapes": shapes or {}}, ModelConfig, model)
        engine = load(model, config.shapes)
        inputs, count = read_inputs(rows_file, engine.spec) if rows_file else seeded_inputs(engine, rows)
        sample = make_golden(engine, inputs, count)
    try:
        write_golden(out, engine.spec, sample)
    except OSError as error:
        raise Failed(f"{out}: {error.strerror}") from None
    click.echo(f"{out}: {count} rows of {engine.spec.describe()}")
