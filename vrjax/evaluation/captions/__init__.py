"""Captions and short answers against references: BLEU, CIDEr and METEOR, equal to the COCO caption evaluation's."""

from vrjax.evaluation.captions.ptb_words import ptb_words
from vrjax.evaluation.captions.scores import METRICS, CaptionScores, Metric, score_captions

__all__ = ["METRICS", "CaptionScores", "Metric", "ptb_words", "score_captions"]
