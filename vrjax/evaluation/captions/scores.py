"""BLEU, CIDEr and METEOR of texts by id, as the COCO caption evaluation reports them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from vrjax.errors import InputError, listed
from vrjax.evaluation.captions.bleu import LONGEST, bleu_statistics
from vrjax.evaluation.captions.cider import cider
from vrjax.evaluation.captions.meteor import meteor, meteor_missing
from vrjax.evaluation.captions.ptb_words import ptb_words

Metric = Literal["bleu", "cider", "meteor"]
METRICS: tuple[Metric, ...] = ("bleu", "cider", "meteor")


@dataclass(frozen=True)
class CaptionScores:
    """corpus: over all items, by name (bleu_1 to bleu_4, cider, meteor); items: of each, by id.

    Only CIDEr's corpus value is the mean over items. left_out: metrics that could not be computed here, and why.
    """

    corpus: Mapping[str, float]
    items: Mapping[str, Mapping[str, float]]
    left_out: Mapping[str, str] = field(default_factory=dict)


def score_captions(
    predictions: Mapping[str, str], references: Mapping[str, Sequence[str]], metrics: Sequence[Metric] | None = None
) -> CaptionScores:
    """Score one text for each id against one or more references.

    metrics: None for all, METEOR left out with a reason where Java or its program is missing; one that is asked for by
    name and cannot be computed is an error. Texts may be empty.

    Raises:
        InputError: there is nothing to score, an id is on one side only, or an id has no reference.
    """
    if not predictions:
        raise InputError("there are no predictions to score.")
    _refuse([name for name in predictions if name not in references], "no reference for")
    _refuse([name for name in references if name not in predictions], "no prediction for")
    _refuse([name for name in predictions if not references[name]], "an empty list of references for")
    left_out = {}
    if metrics is None:
        missing = meteor_missing()
        metrics = METRICS if missing is None else ("bleu", "cider")
        left_out = {} if missing is None else {"meteor": missing}
    ids = list(references)
    told = ptb_words([predictions[name] for name in ids])
    flat = iter(ptb_words([text for name in ids for text in references[name]]))
    known = [[next(flat) for _ in references[name]] for name in ids]

    corpus: dict[str, float] = {}
    columns: dict[str, np.ndarray] = {}
    if "bleu" in metrics:
        statistics = bleu_statistics(told, known)
        of_corpus, of_items = statistics.corpus(), statistics.items()
        for size in range(LONGEST):
            corpus[f"bleu_{size + 1}"] = float(of_corpus[size])
            columns[f"bleu_{size + 1}"] = of_items[:, size]
    if "cider" in metrics:
        columns["cider"] = cider(told, known)
        corpus["cider"] = float(columns["cider"].mean())
    if "meteor" in metrics:
        corpus["meteor"], columns["meteor"] = meteor(told, known)
    items = {name: {key: float(column[row]) for key, column in columns.items()} for row, name in enumerate(ids)}
    return CaptionScores(corpus, items, left_out)


def _refuse(names: Sequence[str], what: str) -> None:
    if names:
        raise InputError(f"{what} {listed(names)}. Check that the two files belong together.")
