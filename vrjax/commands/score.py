"""`vrjax score`: score a file of results offline."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from vrjax.commands.judging import Judging
from vrjax.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

Metric = Literal["bleu", "cider", "meteor"]
Kind = Literal["evidence", "captions", "moviecore"]


@dataclass(frozen=True)
class Score:
    """Score a file of results without a model.

    `evidence` reads the result file of EG-VQA's evaluator (one row a question, with `model_response_raw`,
    `parsed_response` or `error`) and reports format rate, soft and hard EG-F1, event F1, GAS, and every fault by name.
    References are those in the rows themselves, or a file of EG-VQA records whose question ids must match.

    `captions` compares texts with references by BLEU, CIDEr and METEOR, equal to the COCO caption evaluation's. It
    takes texts by id, COCO's results and annotations, rows with `pred` and `answer`, and MovieCORE's form. METEOR needs
    Java.

    `moviecore` scores files in MovieCORE's official form in five dimensions, by the verdicts that they hold or by a
    judge, and compares several files with the first. `--moviechat` adds the same system's answers to MovieChat-1K.

    Examples::

        vrjax score evidence results.json
        vrjax score evidence results.json eg_vqa_test.json --similarity models/all-MiniLM-L6-v2
        vrjax score evidence results.json --similarity tokens --json
        vrjax score captions predictions.json references.json --metrics bleu cider
        vrjax score moviecore base.json ace.json --judge openai:gpt-4o-mini --save-judged judged
        vrjax score moviecore judged/base.json judged/ace.json --per-question questions.jsonl
    """

    kind: tyro.conf.Positional[Kind]
    """What the file holds."""
    predictions: tyro.conf.Positional[Path]
    """Result file (.json or .jsonl)."""
    references: tyro.conf.Positional[Path | None] = None
    """What to score against, instead of the references in the rows; for moviecore a second file of answers."""
    further: tyro.conf.Positional[tuple[Path, ...]] = ()
    """For moviecore: more files of answers."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON instead of tables."""
    similarity: str = "BAAI/bge-m3"
    """Sentence model that compares descriptions (directory or Hugging Face id), or `tokens` for word overlap."""
    answer_score: Literal["token_f1", "exact", "recorded"] = "token_f1"
    """How answers are scored for GAS: a rule, or the field `answer_score` of each row (a judge's 0, .5 or 1)."""
    missing: Literal["error", "unanswered"] = "error"
    """What to do with references that have no row."""
    cache_dir: Path | None = None
    """Where sentence embeddings and a judge's replies are kept; by default `vrjax` in the user's cache folder."""
    per_question: Path | None = None
    """Also write one JSON line a question to this file."""
    metrics: tuple[Metric, ...] | None = None
    """Of texts; by default BLEU and CIDEr, for captions also METEOR where Java and pycocoevalcap are installed."""
    judging: tyro.conf.OmitArgPrefixes[Judging] = field(default_factory=Judging)

    def run(self) -> int:
        """Score, print, and return the exit code."""
        if self.further and self.kind != "moviecore":
            raise InputError(f"{self.kind} takes one file of results and one of references. Leave out the others.")
        summary, rows, tables = SCORERS[self.kind](self)
        if self.per_question is not None:
            self.per_question.parent.mkdir(parents=True, exist_ok=True)
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            self.per_question.write_text("".join(lines), encoding="utf-8", errors="backslashreplace")
        if self.json:
            print(json.dumps(summary, indent=1))
        else:
            from rich.console import Console

            console = Console()
            for table in tables(summary):
                console.print(table)
        return 0


def _default_cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vrjax"


# summary for --json, one row a question, and the tables of a summary
Scored = tuple[dict[str, Any], list[dict[str, Any]], Callable[[dict[str, Any]], "list[Table]"]]


def _score_evidence(options: Score) -> Scored:
    from vrjax.evidence import exact_match, make_similarity, score_questions, summarise, token_f1
    from vrjax.evidence.result_file import join, load_references, load_results, own_references

    results = load_results(options.predictions)
    if options.references is None:
        references = own_references(results, options.predictions)
    else:
        references = load_references(options.references)
    rule = {"token_f1": token_f1, "exact": exact_match}.get(options.answer_score)
    items = []
    for reference, row, item in join(results, references, options.predictions, options.missing == "unanswered"):
        if item.response is not None and row is not None:
            given = rule(reference.answer, item.response.answer) if rule else row.answer_score
            item = replace(item, answer_score=given)
        items.append(item)
    similarity = make_similarity(options.similarity, options.cache_dir or _default_cache_dir())
    scores = score_questions(items, similarity)
    summary = summarise(scores, similarity.name, options.answer_score)
    return summary, [score.as_row() for score in scores], _evidence_tables


def _score_captions(options: Score) -> Scored:
    from vrjax.commands.score_captions import caption_tables, score_caption_files

    missing = "error" if options.missing == "error" else "empty"
    summary, rows = score_caption_files(options.predictions, options.references, options.metrics, missing)
    return summary, rows, caption_tables


def _score_moviecore(options: Score) -> Scored:
    from vrjax.commands.score_moviecore import moviecore_tables, score_moviecore_files

    files = [options.predictions, *([options.references] if options.references else []), *options.further]
    summary, rows = score_moviecore_files(
        files,
        options.judging,
        options.judging.client((options.cache_dir or _default_cache_dir()) / "replies"),
        options.metrics or ("bleu", "cider"),
        options.missing == "unanswered",
    )
    return summary, rows, moviecore_tables


def _evidence_tables(summary: dict[str, Any]) -> list[Table]:
    from rich.markup import escape
    from rich.table import Table

    def shown(value: float | None, scale: float = 100) -> str:
        return "–" if value is None else f"{scale * value:.2f}"

    metrics = Table(
        title=f"Evidence: {summary['scored']} of {summary['n']} questions answered",
        caption=f"F1 in percent. Similarity: {escape(summary['similarity'])}. Answers: {summary['answer_score']}, "
        f"{summary['answers_scored']} scored. All questions: unanswered and unscored count 0.",
    )
    metrics.add_column("Metric")
    for column in ("All questions", "Scored only", "Corpus"):
        metrics.add_column(column, justify="right")
    for key in summary["scored_only"]:
        scale = 1 if key == "gas" else 100
        values = (summary[key], summary["scored_only"][key], summary["corpus"].get(key))
        metrics.add_row(key, *(shown(value, scale) for value in values))
    tables = [metrics]
    counts = {
        **{f"unanswered: {name}": count for name, count in summary["unanswered"].items()},
        **summary["faults"],
        **{f"reference {name}": count for name, count in summary["reference_faults"].items()},
    }
    if any(counts.values()):
        faults = Table(title="Faults")
        faults.add_column("Name")
        faults.add_column("Count", justify="right")
        for name, count in counts.items():
            if count:
                faults.add_row(escape(name), str(count))
        tables.append(faults)
    return tables


SCORERS: dict[str, Callable[[Score], Scored]] = {
    "evidence": _score_evidence,
    "captions": _score_captions,
    "moviecore": _score_moviecore,
}
"""One function a kind. A new kind is one entry here and one name in `Kind`."""
