"""What a scorer can't do."""


class ScoreError(Exception):
    """A table can't be scored. The text is one line that says what was expected, what came and what to do."""


class BadRowError(ScoreError):
    """A row that the model can't be asked about, or that it has no answer to. `row` counts from 0."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(f"row {row}, counted from 0: {why}; --on-bad-row null leaves such rows without an answer")
        self.row = row
        self._why = why

    def __reduce__(self) -> tuple[type["BadRowError"], tuple[int, str]]:
        # Else it would not come whole from another process, as Ray brings it.
        return BadRowError, (self.row, self._why)
