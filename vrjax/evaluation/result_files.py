"""What an evaluation leaves behind, and reading it again: `scores.json`, and one line an item in `items.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Benchmark, BenchmarkScore, Item, Prediction
from vrjax.evaluation.intervals import Interval
from vrjax.records import load_json
from vrjax.run_directory import CONFIG, RunDirectory

SCORES, ITEMS = "scores.json", "items.jsonl"
SHOWN_REFERENCE = ("answer", "choice", "spans", "evidence")


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """An evaluation as it was written. rows: of `items.jsonl`, in order; settings: of `config.json`."""

    folder: Path
    scores: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.scores["subject"])

    def interval(self, metric: str) -> Interval | None:
        found = self.scores["intervals"].get(metric)
        return None if found is None else Interval(**found)


def item_rows(
    benchmark: Benchmark, items: Sequence[Item], predictions: Sequence[Prediction], score: BenchmarkScore
) -> list[dict[str, Any]]:
    """One row an item: what was asked, what was said, what was read in it, and its scores."""
    by_id = {prediction.id: prediction for prediction in predictions}
    scored = {one.id: one for one in score.items}
    rows = []
    for item in items:
        prediction, found, reference = by_id.get(item.id), scored[item.id], item.reference or {}
        row: dict[str, Any] = {
            "id": item.id,
            "video": item.video,
            "types": list(item.types),
            "question": item.question,
            "options": dict(item.options),
            "duration": item.duration,
            "reference": {key: reference[key] for key in SHOWN_REFERENCE if key in reference},
            "text": None if prediction is None else prediction.text,
            "error": None if prediction is None else prediction.error,
            "parsed": _parsed(benchmark, item, prediction),
            "values": dict(found.values),
            "failure": found.failure,
            "notes": dict(found.notes),
        }
        rows.append(row)
    return rows


def _parsed(benchmark: Benchmark, item: Item, prediction: Prediction | None) -> dict[str, Any]:
    if prediction is None:
        return {}
    if prediction.parsed or prediction.text is None:
        return dict(prediction.parsed)
    return dict(benchmark.parse(item, prediction.text).values)


def asked_with(summary: Mapping[str, Any]) -> str:
    """In whose words the questions were put, for people."""
    if summary.get("wording") == "checkpoint":
        return "the checkpoint's own"
    return f"{summary['prompt']['name']}, version {summary['prompt']['version']}"


def score_row(benchmark: Benchmark, subject: str, score: BenchmarkScore, **more: Any) -> dict[str, Any]:
    """A score as JSON: all but the items."""
    return {
        "benchmark": score.benchmark,
        "subject": subject,
        "n": len(score.items),
        "headline": benchmark.headline,
        "answering": benchmark.answering or benchmark.headline,
        "best": benchmark.best,
        "grounding": None if benchmark.grounding is None else list(benchmark.grounding),
        "prompt": asdict(benchmark.prompt),
        "table": {title: score.official[key] for title, key in benchmark.table.items() if key in score.official},
        "official": dict(score.official),
        "strict": dict(score.strict),
        "intervals": {name: asdict(interval) for name, interval in score.intervals.items()},
        "coverage": score.coverage,
        "by_type": {kind: dict(row) for kind, row in score.by_type.items()},
        "failures": dict(score.failures),
        "quirks": list(score.quirks),
        "details": dict(score.details),
        **more,
    }


def write_items(run: RunDirectory, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace `items.jsonl`, whole or not at all."""
    run.write_text(ITEMS, "".join(json.dumps(row) + "\n" for row in rows))


def load_scored_run(folder: str | Path) -> ScoredRun:
    """Read what `vrjax evaluate` wrote. Raises InputError where the folder holds no scores, or damaged ones."""
    folder = Path(folder)
    if not (folder / SCORES).is_file():
        raise InputError(f"{folder}: holds no {SCORES}. Give a folder that vrjax evaluate has finished.")
    scores, rows = load_json(folder / SCORES), load_json(folder / ITEMS)
    wanted = ("benchmark", "subject", "headline", "official", "strict", "intervals", "by_type", "n")
    lacking = [key for key in wanted if not isinstance(scores, dict) or key not in scores]
    if lacking:
        raise InputError(f"{folder / SCORES}: {lacking[0]} is not there. Evaluate again.")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not {"id", "video", "values", "types"} <= row.keys():
            raise InputError(f"{folder / ITEMS}: line {number} is no scored item. Evaluate again.")
    settings = RunDirectory(folder, writes=False).read_json(CONFIG) or {}
    return ScoredRun(folder=folder, scores=scores, rows=rows, settings=settings)
