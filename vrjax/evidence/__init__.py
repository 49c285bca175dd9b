"""Timed evidence: spans, the response format and its parser, similarity, matching, and scores. Knows no model."""

from vrjax.evidence.answer import exact_match, token_f1
from vrjax.evidence.matching import (
    MatchScore,
    RewardVariant,
    eg_f1,
    event_f1,
    evidence_reward_parts,
    soft_eg_f1,
)
from vrjax.evidence.response import (
    EVIDENCE_INSTRUCTION,
    EvidenceLine,
    Fault,
    Response,
    format_response,
    parse_line,
    parse_response,
)
from vrjax.evidence.scoring import (
    QuestionScore,
    ScoredItem,
    grounded_answer_score,
    reference_evidence,
    score_question,
    score_questions,
    summarise,
)
from vrjax.evidence.similarity import SentenceSimilarity, Similarity, TokenSimilarity, make_similarity
from vrjax.evidence.spans import Evidence, Span, TimedDescription, iou, iou_matrix
from vrjax.evidence.time_range import find_time_ranges, format_time, format_time_range, parse_time_range

__all__ = [
    "EVIDENCE_INSTRUCTION",
    "Evidence",
    "EvidenceLine",
    "Fault",
    "MatchScore",
    "QuestionScore",
    "Response",
    "RewardVariant",
    "ScoredItem",
    "SentenceSimilarity",
    "Similarity",
    "Span",
    "TimedDescription",
    "TokenSimilarity",
    "eg_f1",
    "event_f1",
    "evidence_reward_parts",
    "exact_match",
    "find_time_ranges",
    "format_response",
    "format_time",
    "format_time_range",
    "grounded_answer_score",
    "iou",
    "iou_matrix",
    "make_similarity",
    "parse_line",
    "parse_response",
    "parse_time_range",
    "reference_evidence",
    "score_question",
    "score_questions",
    "soft_eg_f1",
    "summarise",
    "token_f1",
]
