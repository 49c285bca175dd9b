"""ACE: candidates of a video model, chosen between by a small language model."""

from __future__ import annotations

from vrjax.reranking.ace import AceResult, Candidate, Reranker
from vrjax.reranking.scorer import ReadOut, Scorer, ScorerOptions

__all__ = ["AceResult", "Candidate", "ReadOut", "Reranker", "Scorer", "ScorerOptions"]
