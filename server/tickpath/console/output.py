"""How commands print."""

import click


def print_rich(*what: object) -> None:
    """Tables and text, as wide as they are."""
    from rich.console import Console

    Console(highlight=False, markup=False).print(*what, sep="\n", crop=False)


def print_json(value: object) -> None:
    """One value as a line of JSON."""
    import msgspec

    click.echo(msgspec.json.encode(value))
