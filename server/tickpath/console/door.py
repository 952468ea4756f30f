"""`tickpath door`: the Open Inference Protocol in front of a server that runs already, wherever it runs."""

import click

from tickpath.console.endings import AddressRefused, Failed, Misconfigured, ending
from tickpath.console.options import LOG_FORMAT, credentials
from tickpath.loadtest.command import AT
from tickpath.logs import LogFormat

PORT = click.IntRange(0, 65535)

EXAMPLES = """
Examples:

\b
tickpath door --http 8000 --grpc 8001
tickpath door --at unix:/run/tickpath.sock --http 8000 --host 0.0.0.0 --bearer

Exit code: 0 after SIGTERM or Ctrl-C, 2 a file can't be read or is wrong, 4 an address can't be listened on.
"""


@click.command(epilog=EXAMPLES)
@AT
@credentials
@click.option("--bearer", is_flag=True, help="Pass on the tokens that requests bring: the server says who they are.")
@click.option("--http", "http_port", type=PORT, metavar="PORT", help="REST here, 0: a free port.")
@click.option("--grpc", "grpc_port", type=PORT, metavar="PORT", help="gRPC here, 0: a free port.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on.")
@click.option("--insecure", is_flag=True, help="Listen beyond this machine though nobody is asked.")
@click.option("--admin", metavar="PATH", help="The server's admin socket, for whoever connects to load and unload by.")
@click.option("--json", "as_json", is_flag=True, help="Print where as a JSON line.")
@click.option("--log-format", type=LOG_FORMAT, default="human", show_default=True, help="What stderr gets.")
def door(
    *,
    address: str,
    bearer: bool,
    http_port: int | None,
    grpc_port: int | None,
    host: str,
    insecure: bool,
    admin: str | None,
    as_json: bool,
    token_file: str | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    log_format: LogFormat,
) -> None:
    """Answer Open Inference Protocol (v2) requests from a server."""
    from tickpath.client.errors import AddressError, CredentialsError
    from tickpath.client.tls import tls_of
    from tickpath.client.token import token_from, token_now
    from tickpath.door.environment import prepare
    from tickpath.logs import logging_to_stderr
    from tickpath.server.access_config import is_loopback

    if http_port is None and grpc_port is None:
        raise click.UsageError("expected --http, --grpc or both")
    if not (bearer or insecure or is_loopback(host)):
        raise click.UsageError(
            f"--host {host} is more than this machine, and whoever reaches it is asked for nothing: give --bearer, or "
            "say --insecure"
        )
    prepare()
    try:
        from tickpath.door.door import DoorAddressError, print_ready, run
        from tickpath.door.settings import DoorReady, DoorSettings
    except ModuleNotFoundError as missing:
        raise Failed(f"{missing.name} is not there: pip install 'tickpath[door]'") from None

    def say_ready(ready: DoorReady) -> None:
        click.echo(f"Open Inference Protocol at {' and '.join(filter(None, (ready.http, ready.grpc)))}")

    settings = DoorSettings(
        core=address,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        admin=admin,
        token_file=token_file,
        bearer=bearer,
        tls=tls_of(tls_ca, tls_cert, tls_key),
    )
    wrong = (AddressError, CredentialsError)
    with logging_to_stderr(log_format), ending(AddressRefused, DoorAddressError), ending(Misconfigured, *wrong):
        # Both are read at each connection; that they can't be is better known now.
        token_now(token_from(token_file))
        if settings.tls is not None:
            settings.tls.context()
        run(settings, print_ready if as_json else say_ready)
