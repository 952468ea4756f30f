"""The `tickpath` command: parses, calls, prints. What takes long to import is imported by the command that needs it."""

import io
import os
import sys

try:
    from pathlib import Path

    import click

    from tickpath.console.compile import compile_
    from tickpath.console.deploy import COMMANDS as DEPLOY_COMMANDS
    from tickpath.console.doctor import doctor
    from tickpath.console.door import door
    from tickpath.console.endings import AddressRefused, DeviceLost, Failed, Misconfigured, ModelRefused, ending
    from tickpath.console.golden import golden
    from tickpath.console.models import models
    from tickpath.console.options import (
        LOG_FORMAT,
        SHAPES,
        credentials,
        read_buckets,
        read_model,
        read_name,
        read_slow,
    )
    from tickpath.console.output import print_json, print_rich
    from tickpath.console.replay import replay
    from tickpath.console.score import score
    from tickpath.console.streaming import streaming
    from tickpath.console.vectors import vectors
    from tickpath.console.watching import COMMANDS as WATCHING_COMMANDS
    from tickpath.loadtest.command import AT, loadtest
    from tickpath.logs import CONTROLS
except ModuleNotFoundError:
    raise SystemExit(
        "tickpath: the command line is more than the bare client: pip install 'tickpath[server]'"
    ) from None
except KeyboardInterrupt:
    raise SystemExit(130) from None  # INTERRUPTED, which is not there yet

PORT = click.IntRange(0, 65535)

INTERRUPTED = 130
"""Exit code after Ctrl-C, where the command had nothing to show for it."""


def main() -> None:
    """Run the command; whatever went wrong is one line on stderr."""
    _open_standard_files()
    try:
        sys.exit(tickpath.main(standalone_mode=False))
    except click.ClickException as error:
        _complain(error)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except OSError as error:  # a full disk behind stdout, no descriptor or process left
        print(f"tickpath: {error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else what could not be written is tried again at the very end
        sys.exit(Failed.exit_code)


def _open_standard_files() -> None:
    """Whoever started us may have closed them (`>&-`): the next file opened would take such a number, a socket or the
    records, and what is meant for a terminal be written there. And where a terminal lacks a letter, it gets a `?`."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _complain(error: click.ClickException) -> None:
    problem = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        end = "" if problem.endswith((".", "?", ")")) else "."
        problem = f"{problem}{end} See `{error.ctx.command_path} --help`."
    print(f"tickpath: {problem.translate(CONTROLS)}", file=sys.stderr)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tickpath")
@click.pass_context
def tickpath(context: click.Context) -> None:
    """Serve models over a socket, and see how long an answer takes.

    \b
    tickpath demo                           serve, stream, measure: ten seconds
    tickpath serve model.onnx               a model file goes in,
    tickpath call model --input x=random    a prediction comes out
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


SERVE_EXAMPLES = """
Examples:

\b
tickpath serve model.onnx
tickpath serve models/
tickpath serve model.onnx --name btc --buckets 1,8 --uds /run/tickpath.sock
tickpath serve model.onnx --shape x=N,120,3 --spin --cpu 3
tickpath serve --config tickpath.toml --port 7071

Exit code: 0 after SIGTERM or Ctrl-C once it listens, 2 the configuration is wrong, 3 a model is refused, 4 an address
can't be listened on, 6 a device is lost and a new process may find it again, 1 anything else.
"""


@tickpath.command(epilog=SERVE_EXAMPLES)
@click.argument("model", metavar="[MODEL|FOLDER]", nargs=-1, callback=read_model)
@click.option(
    "--name", callback=read_name, metavar="NAME", help="What clients call the model.  [default: the file's name]"
)
@click.option("--config", metavar="FILE.toml", type=Path, help="All settings, limits too; options here win.")
@click.option("--host", metavar="HOST", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=PORT, metavar="PORT", help="TCP port, 0 for a free one.  [default: 7070]")
@click.option("--uds", metavar="PATH", help="Listen on a Unix socket as well.")
@click.option("--tls-cert", metavar="FILE.pem", help="Speak TLS on the TCP port, with this certificate.")
@click.option("--tls-key", metavar="FILE.pem", help="Its key.")
@click.option("--tls-client-ca", metavar="FILE.pem", help="Take clients with a certificate of these authorities alone.")
@click.option("--insecure", is_flag=True, default=None, help="Listen beyond this machine though nobody is asked.")
@click.option(
    "--observer-port", type=PORT, metavar="PORT", help="HTTP port of /metrics, 0: a free one.  [default: 9090]"
)
@click.option("--server-name", metavar="NAME", help="What its metrics call it.  [default: host/address]")
@click.option("--no-observer", is_flag=True, help="No metrics and no HTTP.")
@click.option("--observer-triton-names", is_flag=True, default=None, help="Triton's names in /metrics, too.")
@click.option("--trace-endpoint", metavar="URL", help="Send slow requests as OTLP traces: docs/OBSERVER.md.")
@click.option("--trace-sample", type=click.FloatRange(0, 1), metavar="SHARE", help="And these of all.  [default: 0]")
@click.option("--trace-slow", callback=read_slow, metavar="MS|p99.9|off", help="Slow is above.  [default: p99.9]")
@click.option("--oip", "oip_port", type=PORT, metavar="PORT", help="Open Inference Protocol, REST, here: docs/DOOR.md.")
@click.option("--oip-grpc", "oip_grpc_port", type=PORT, metavar="PORT", help="Open Inference Protocol, gRPC, here.")
@click.option("--spin", is_flag=True, default=None, help="Never sleep while waiting: costs a core, saves the wake-up.")
@click.option(
    "--poll-us",
    type=click.IntRange(0, 1_000_000),
    metavar="µs",
    help="Stay awake so long after a request.  [default: 50]",
)
@click.option("--cpu", type=click.IntRange(0), metavar="N", help="Stay on core N.")
@SHAPES
@click.option("--buckets", callback=read_buckets, metavar="1,2,8", help="Batch sizes to prepare.  [default: 1,2,4,8]")
@click.option("--executor", type=click.Choice(["auto", "inline", "thread"]), help="Where it runs.  [default: auto]")
@click.option(
    "--non-finite", type=click.Choice(["refuse", "flag", "pass"]), help="NaN and infinity.  [default: refuse]"
)
@click.option("--trust", is_flag=True, default=None, help="The file's maker may run code here: for .pt2 files that do.")
@click.option("--admin", metavar="PATH", help="Unix socket for `tickpath reload` and its like.")
@click.option(
    "--watch",
    "watch_s",
    type=click.FloatRange(0, 3600, min_open=True),
    metavar="S",
    help="Reload what is new in FOLDER.",
)
@click.option("--record", metavar="DIR", help="Keep requests and answers there: docs/RECORDING.md.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.option("--log-format", type=LOG_FORMAT, help="What stderr gets.  [default: human]")
def serve(model: str | None, config: Path | None, as_json: bool, **options: object) -> int:
    """Serve a model file, a folder of models, or all of a FILE.toml."""
    import signal

    from tickpath.console.first_process import run_as_child

    if (code := run_as_child()) is not None:
        return code
    # Until the server has handlers of its own: an exception out of one would print whatever import it came in.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    from tickpath.console.settings import serve_values
    from tickpath.server.config import ConfigError, make_config
    from tickpath.server.config_file import read_config
    from tickpath.server.repository import add_repository

    if model is not None and Path(model).is_dir():
        model, options["repository"] = None, model
    with ending(Misconfigured, ConfigError):
        values = serve_values(read_config(config) if config else {}, model, options)
        settings = add_repository(make_config(values, str(config or "configuration")))

    from tickpath.engines import DeviceLostError, ModelRefusedError
    from tickpath.server import core
    from tickpath.server.child_process import ChildError
    from tickpath.server.listeners import AddressError

    with (
        ending(ModelRefused, ModelRefusedError),
        ending(Misconfigured, ConfigError),
        ending(AddressRefused, AddressError),
        ending(Failed, ChildError),
        ending(DeviceLost, DeviceLostError),
    ):
        return core.run(settings, json_lines=as_json)


tickpath.add_command(models)
tickpath.add_command(golden)


CALL_EXAMPLES = """
Examples:

\b
tickpath call mlp --input x=random
tickpath call btc --input x=window.npy --at unix:/run/tickpath.sock
tickpath call mlp --input x=random --rows 8 --count 1000 --json
"""


@tickpath.command(epilog=CALL_EXAMPLES)
@click.argument("name")
@click.option("--input", "inputs", multiple=True, metavar="INPUT=FILE.npy|NUMBER|random", help="One for each input.")
@AT
@credentials
@click.option("--rows", type=click.IntRange(1, 65536), metavar="N", help="Rows of random inputs.  [default: 1]")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Ask this many times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; NaN and infinity become null.")
def call(
    *,
    name: str,
    inputs: tuple[str, ...],
    address: str,
    rows: int | None,
    count: int,
    as_json: bool,
    **shown: str | None,
) -> None:
    """Ask NAME for a prediction; show it, and where its time went."""
    from tickpath.client import TickpathError
    from tickpath.console import calls
    from tickpath.console.connecting import connect
    from tickpath.console.errors import ConsoleError

    with ending(Failed, TickpathError, ConsoleError), connect(address, **shown) as client:
        model = client.model(name)
        arrays = calls.make_inputs(model, calls.parse_sources(inputs), rows or 1)
        answers = calls.call(client, name, arrays, rows, count)
    if as_json:
        print_json(calls.plain_answer(name, answers))
        return

    from tickpath.console.tables import answer_tables

    print_rich(*answer_tables(answers))


@tickpath.command(epilog="Examples:\n\n\b\ntickpath demo\ntickpath demo --model lstm_a --rate 200 --seconds 30")
@click.option("--floor", type=Path, metavar="PATH", help="The C floor to compare with: `make build/floor` builds it.")
@click.option("--model", default="mlp", show_default=True, metavar="NAME", help="One of `tickpath zoo --list`.")
@click.option("--rate", type=click.FloatRange(1, 100_000), default=1000, show_default=True, help="Requests a second.")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=10, show_default=True, help="How long to stream.")
def demo(floor: Path | None, model: str, rate: float, seconds: float) -> None:
    """Serve a model, stream a synthetic order book to it, measure."""
    import signal

    from rich.console import Console

    from tickpath.client import TickpathError
    from tickpath.console import demo as demonstration
    from tickpath.console.errors import ConsoleError
    from tickpath.loadtest.errors import LoadTestError

    _check_zoo(model)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ending(Failed, TickpathError, ConsoleError, LoadTestError):
        demonstration.run(demonstration.Settings(model, rate, seconds, floor), Console(highlight=False))


tickpath.add_command(compile_)
tickpath.add_command(streaming)
tickpath.add_command(loadtest)
tickpath.add_command(vectors)
tickpath.add_command(door)
tickpath.add_command(replay)
tickpath.add_command(score)
tickpath.add_command(doctor)
for command in (*DEPLOY_COMMANDS, *WATCHING_COMMANDS):
    tickpath.add_command(command)


def _list_zoo(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from tickpath.engines import zoo as models_zoo

    for name in models_zoo.names():
        click.echo(f"{name:<8}  {models_zoo.describe(name)}")
    context.exit()


@tickpath.command(epilog="Examples:\n\n\b\ntickpath zoo --list\ntickpath zoo mlp mlp.onnx")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list_zoo, help="Say what there is.")
@click.argument("name")
@click.argument("out", metavar="OUT.onnx", type=Path)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def zoo(name: str, out: Path, force: bool) -> None:
    """Write a reference model: a real one's shape, untrained weights."""
    from tickpath.engines import zoo as models_zoo

    _check_zoo(name)
    try:
        with out.open("wb" if force else "xb") as file:
            file.write(models_zoo.build(name).SerializeToString())
    except FileExistsError:
        raise Failed(f"{out} is there already: give another name, or --force to write over it") from None
    except OSError as error:
        raise Failed(f"{out}: {error.strerror}") from None
    click.echo(f"{out}: {models_zoo.describe(name)}")


def _check_zoo(name: str) -> None:
    from tickpath.engines import zoo as models_zoo

    if name not in models_zoo.names():
        raise click.BadParameter(f"the zoo has no {name!r}; it has {', '.join(models_zoo.names())}")


if __name__ == "__main__":
    main()
