"""`vrjax score captions`: BLEU, CIDEr and METEOR of a file of texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vrjax.evaluation.captions.caption_files import load_caption_pairs
from vrjax.evaluation.captions.scores import Metric, score_captions

if TYPE_CHECKING:
    from rich.table import Table


def score_caption_files(
    predictions: Path, references: Path | None, metrics: Sequence[Metric] | None, missing: Literal["error", "empty"]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary for `--json`, and one row a text."""
    told, known = load_caption_pairs(predictions, references, missing)
    scores = score_captions(told, known, metrics)
    summary = {
        "n": len(told),
        "references": sum(len(texts) for texts in known.values()),
        "empty": sum(not text.strip() for text in told.values()),
        **scores.corpus,
        "left_out": dict(scores.left_out),
    }
    return summary, [{"id": name, "prediction": told[name], **values} for name, values in scores.items.items()]


def caption_tables(summary: dict[str, Any]) -> list[Table]:
    from rich.table import Table

    table = Table(
        title=f"{summary['n']} texts against {summary['references']} references",
        caption=" ".join([f"{summary['empty']} texts are empty.", *(f"{why}" for why in summary["left_out"].values())]),
    )
    table.add_column("Metric")
    table.add_column("Corpus", justify="right")
    for key, value in summary.items():
        if isinstance(value, float):
            table.add_row(TITLES[key], f"{value:.4f}")
    return [table]


TITLES = {**{f"bleu_{size}": f"BLEU-{size}" for size in range(1, 5)}, "cider": "CIDEr", "meteor": "METEOR"}
