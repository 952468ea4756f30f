"""What a command can't do."""


class ConsoleError(Exception):
    """A command can't go on. The text is one line that says what was expected, what came and what to do."""
