"""`tickpath vectors verify`: whether somebody's program speaks the protocol."""

from pathlib import Path

import click

from tickpath.console.endings import Failed, ending
from tickpath.console.output import print_json

EXAMPLES = """
Examples:

\b
tickpath vectors verify ./tickpath-vectors
tickpath vectors verify 'java -cp build Vectors' --json

Exit code: 0 all that the program supports is right, 1 something is wrong or nothing is supported, 2 it can't be run.
"""


@click.group()
def vectors() -> None:
    """Check a client in any language against the protocol's vectors."""


@vectors.command(epilog=EXAMPLES)
@click.argument("command", metavar="CMD")
@click.option("--from", "folder", metavar="FOLDER", type=Path, help="The vectors.  [default: this version's own]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a question.")
def verify(command: str, folder: Path | None, as_json: bool) -> int:
    """Ask CMD to decode and encode every vector, and show what it got wrong.

    CMD reads questions as lines and answers each with a line; clients/vectors/README.md has the few forms there are.
    What it does not do it answers with `unsupported`: a client need not read what clients send.
    """
    from tickpath.console.errors import ConsoleError
    from tickpath.console.vector_check import ask_all, passed, plain, show

    with ending(Failed, ConsoleError):
        outcomes = ask_all(command, folder)
    if as_json:
        for outcome in outcomes:
            print_json(plain(outcome))
    else:
        show(outcomes)
    return 0 if passed(outcomes) else 1
