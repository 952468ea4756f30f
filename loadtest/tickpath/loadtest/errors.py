"""What a load test can't do."""


class LoadTestError(Exception):
    """What was asked for can't be measured. The text is one line: what was expected, what came, what to do."""


class UsageError(LoadTestError):
    """What the flags ask for can't be; found before anything was sent."""
