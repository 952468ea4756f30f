"""The commands that change what a running server serves, over its admin socket."""

import json
import socket
from collections.abc import Callable
from typing import Any

import click

# A reload may have to compile a model.
ANSWER_S_MAX = 660.0


def _given(_context: click.Context, _parameter: click.Parameter, admin: str | None) -> str:
    if admin is None:
        raise click.UsageError("which server? Give --admin PATH or TICKPATH_ADMIN, as in its `serve --admin PATH`")
    return admin


ADMIN = click.option(
    "--admin",
    metavar="PATH",
    envvar="TICKPATH_ADMIN",
    callback=_given,
    help="The server's admin socket, as in `serve --admin PATH`; or TICKPATH_ADMIN.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")


class NotDone(click.ClickException):
    """The server did not do what was asked, or could not be asked."""

    exit_code = 1


def _command(name: str, examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    def wrap(function: Callable[..., Any]) -> click.Command:
        return click.command(name, epilog=f"Examples:\n\n\b\n{examples}")(ADMIN(AS_JSON(function)))

    return wrap


@_command("reload", "tickpath reload btc --admin /run/tickpath/admin.sock\ntickpath reload")
@click.argument("model", required=False)
def reload(model: str | None, admin: str, as_json: bool) -> None:
    """Serve what the files of MODEL (or of all) hold now. What fails changes nothing."""
    _ask(admin, as_json, do="reload", model=model)


@_command("load", "tickpath load btc 8 --admin /run/tickpath/admin.sock")
@click.argument("model")
@click.argument("version")
def load(model: str, version: str, admin: str, as_json: bool) -> None:
    """Load VERSION of MODEL beside the live one.

    It then answers clients that name it (MODEL@VERSION), and may be a canary or a shadow.
    """
    _ask(admin, as_json, do="load", model=model, version=version)


@_command("unload", "tickpath unload btc 7\ntickpath unload btc")
@click.argument("model")
@click.argument("version", required=False)
def unload(model: str, version: str | None, admin: str, as_json: bool) -> None:
    """Unload VERSION of MODEL; without one, the whole model."""
    _ask(admin, as_json, do="unload", model=model, version=version)


@_command("rollback", "tickpath rollback btc")
@click.argument("model")
def rollback(model: str, admin: str, as_json: bool) -> None:
    """Have the version that was live before answer again, at once."""
    _ask(admin, as_json, do="rollback", model=model)


@_command("canary", "tickpath canary btc 8 --share 0.05\ntickpath canary btc --off")
@click.argument("model")
@click.argument("version", required=False)
@click.option("--share", type=click.FloatRange(0, 1), metavar="0..1", help="The share of the clients it answers.")
@click.option("--off", is_flag=True, help="The live version answers all again.")
def canary(model: str, version: str | None, share: float | None, off: bool, admin: str, as_json: bool) -> None:
    """Have VERSION of MODEL answer a share of the clients.

    By their name: the same ones each time. It must be loaded.
    """
    if off == (version is not None) or (share is None) != off:
        raise click.UsageError("expected VERSION and --share, or --off")
    _ask(admin, as_json, do="canary", model=model, version=version, share=share or 0.0)


@_command("shadow", "tickpath shadow btc 8\ntickpath shadow btc --off")
@click.argument("model")
@click.argument("version", required=False)
@click.option("--off", is_flag=True, help="Nothing is computed beside the live version any more.")
def shadow(model: str, version: str | None, off: bool, admin: str, as_json: bool) -> None:
    """Have VERSION compute what MODEL has answered, too.

    /metrics says how often it differs. It must be loaded, and answers nobody.
    """
    if off == (version is not None):
        raise click.UsageError("expected VERSION, or --off")
    _ask(admin, as_json, do="shadow", model=model, version=version)


@_command("quiet", "tickpath quiet on\ntickpath quiet auto")
@click.argument("how", type=click.Choice(["on", "off", "auto"]))
def quiet(how: str, admin: str, as_json: bool) -> None:
    """Let nothing be loaded or unloaded for a time.

    on: from now; off: never, whatever the hour; auto: as the configured hours say.
    """
    _ask(admin, as_json, do="quiet", quiet={"on": True, "off": False, "auto": None}[how])


@_command("renew", "tickpath renew --admin /run/tickpath/admin.sock")
def renew(admin: str, as_json: bool) -> None:
    """Read tokens and certificates again.

    The models stay as they are. Files that are wrong change nothing. SIGHUP does it, too, and reloads the models.
    """
    _ask(admin, as_json, do="renew")


@_command("status", "tickpath status\ntickpath status --json")
def status(admin: str, as_json: bool) -> None:
    """Say which versions are loaded, and what each is for."""
    reply = _ask(admin, as_json, do="status")
    if not as_json:
        from rich.console import Console

        from tickpath.console.tables import status_table

        Console(highlight=False, markup=False).print(status_table(reply["models"]), crop=False)
        click.echo("quiet: nothing is loaded or unloaded" if reply["quiet"] else "not quiet")
        if reply["changing"]:
            click.echo("something is being loaded or unloaded")


COMMANDS = (reload, load, unload, rollback, canary, shadow, quiet, renew, status)


def _ask(admin: str, as_json: bool, **asked: object) -> dict[str, Any]:
    """The server's answer, printed unless there is nothing to say. Raises NotDone."""
    line = _exchange(admin, json.dumps(asked).encode() + b"\n")
    reply: dict[str, Any] = json.loads(line)
    if as_json:
        click.echo(line.decode().strip())
    if not reply["done"]:
        raise NotDone("; ".join(reply["text"]))
    if not as_json:
        for text in reply["text"]:
            click.echo(text)
    return reply


def _exchange(admin: str, line: bytes) -> bytes:
    path = admin.removeprefix("unix:")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, connection.makefile("rb") as answers:
            connection.settimeout(ANSWER_S_MAX)
            connection.connect(path)
            connection.sendall(line)
            answer = answers.readline()
    except OSError as error:
        raise NotDone(f"{path}: {error.strerror or error}: name the server's admin socket (serve --admin)") from None
    if not answer.endswith(b"\n"):
        raise NotDone(f"{path}: the server ended before it answered")
    return answer
