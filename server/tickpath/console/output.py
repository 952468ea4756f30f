"""How commands print."""

import click


def print_rich(*what: object) -> None:
    """Tables and text, as wide as they are. Into a file or a pipe, a line of text stays one, for grep."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    for part in what:
        whole = isinstance(part, str) and not console.is_terminal
        console.print(part, crop=False, soft_wrap=whole)


def print_json(value: object) -> None:
    """One value as a line of JSON."""
    import msgspec

    click.echo(msgspec.json.encode(value))
