"""Scoring tables with a model in this process, with a server's own answers: `tickpath score` and its Python side."""

from tickpath.score.errors import BadRowError, ScoreError
from tickpath.score.scorer import Scorer, open_scorer
from tickpath.score.tables import score_table

__all__ = ["BadRowError", "ScoreError", "Scorer", "open_scorer", "score_table"]
