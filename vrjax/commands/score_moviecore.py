"""`vrjax score moviecore`: files of answers judged in five dimensions, side by side, and against System-1."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrjax.commands.judging import Judging
from vrjax.commands.score_captions import TITLES
from vrjax.errors import InputError, RunError, listed
from vrjax.evaluation.benchmark import BenchmarkScore, Item, ItemScore, Prediction, Tools
from vrjax.evaluation.benchmarks.moviechat import MovieChat
from vrjax.evaluation.benchmarks.moviecore import AVERAGE, SHOWN_TEXT_METRICS, MovieCore
from vrjax.evaluation.captions import Metric
from vrjax.evaluation.captions.meteor import meteor_missing
from vrjax.evaluation.dimension_judge import DIMENSIONS
from vrjax.evaluation.dimension_table import dimension_table, system_gap
from vrjax.evaluation.intervals import Interval
from vrjax.evaluation.movie_benchmark import MovieBenchmark

if TYPE_CHECKING:
    from rich.table import Table

    from vrjax.llm import ChatClient

COLUMNS = (*DIMENSIONS, AVERAGE)


def score_moviecore_files(
    files: Sequence[Path],
    judging: Judging,
    client: ChatClient | None,
    metrics: Sequence[Metric],
    missing_counts: bool,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary for `--json`, and one row a question and file.

    The questions are those of the first file. client: the judge, None to use the verdicts in the files. metrics: of the
    texts. missing_counts: questions without an answer count 0; otherwise they are an error.
    """
    missing = meteor_missing() if "meteor" in metrics else None
    if missing is not None:  # before a judge is paid
        raise InputError(f"{missing} Install it, or leave METEOR out (--metrics bleu cider).")
    benchmark = MovieCore(recorded=judging.judged_by, text_metrics=tuple(metrics))
    return asyncio.run(_score(benchmark, files, judging, client, missing_counts))


async def _score(
    benchmark: MovieCore, files: Sequence[Path], judging: Judging, client: ChatClient | None, missing_counts: bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    names = _system_names(files)
    items = benchmark.read(files[0])
    answers = [_answers(benchmark, path, items, missing_counts) for path in files]
    chat = MovieChat(recorded=judging.judged_by)
    chat_items = chat.read(judging.moviechat) if judging.moviechat else []
    chat_answers = _answers(chat, judging.moviechat, chat_items, missing_counts) if judging.moviechat else []

    scores, chat_score = {}, None
    try:
        for path, name, predictions in zip(files, names, answers, strict=True):
            out = None if judging.save_judged is None else judging.save_judged / path.name
            scores[name] = await _judged(benchmark, items, predictions, client, name, out)
        if judging.moviechat is not None:
            out = None if judging.save_judged is None else judging.save_judged / judging.moviechat.name
            chat_score = await _judged(chat, chat_items, chat_answers, client, "MovieChat-1K", out)
    finally:
        if client is not None:
            await client.aclose()
    rows = [_row(name, one) for name, score in scores.items() for one in score.items]
    return _summary(scores, chat_score, client), rows


def _answers(benchmark: MovieBenchmark, path: Path, items: Sequence[Item], missing_counts: bool) -> list[Prediction]:
    predictions = benchmark.read_submission(path, items)
    answered = {one.id for one in predictions if one.text is not None}
    lacking = [item.id for item in items if item.id not in answered]
    if lacking and not missing_counts:
        raise InputError(
            f"{path}: no answer to {listed(lacking)}. Complete the file, or count them 0 (--missing unanswered)."
        )
    return predictions


def _row(system: str, one: ItemScore) -> dict[str, Any]:
    return {
        "system": system,
        "id": one.id,
        "types": list(one.types),
        **one.values,
        "failure": one.failure,
        "notes": dict(one.notes),
    }


async def _judged(
    benchmark: MovieBenchmark,
    items: Sequence[Item],
    predictions: Sequence[Prediction],
    client: ChatClient | None,
    name: str,
    out: Path | None,
) -> BenchmarkScore:
    """Judge, keep the verdicts, score. A judge that failed everywhere is an error, not a table of nothing."""
    if client is not None:
        predictions = await benchmark.judge_predictions(items, predictions, client, _progress(name))
        benchmark = replace(benchmark, recorded=benchmark.judge_name(client))
    if out is not None:
        benchmark.write_submission(out, items, predictions)
    score = await benchmark.score(items, predictions, Tools())
    if client is not None and score.coverage == 0 and client.counts.failed:
        failed = ", ".join(f"{kind} ×{count}" for kind, count in client.counts.failed.most_common())
        note = next((one.notes for one in score.items if one.notes), {})
        raise RunError(f"{name}: the judge gave no usable verdict ({failed}). {next(iter(note.values()), '')}".strip())
    return score


def _progress(name: str) -> Callable[[int, int], None] | None:
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        print(f"\r{name}: {done} of {total} answers judged", end="\n" if done == total else "", file=sys.stderr)

    return show


def _system_names(files: Sequence[Path]) -> list[str]:
    """File names without their endings; with their folders where they are the same."""
    stems = Counter(path.stem for path in files)
    names = [path.stem if stems[path.stem] == 1 else str(path) for path in files]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{twice[0]} is given twice. Give each file once.")
    return names


def _summary(
    scores: dict[str, BenchmarkScore], chat_score: BenchmarkScore | None, client: ChatClient | None
) -> dict[str, Any]:
    first = next(iter(scores.values()))
    systems = []
    for row in dimension_table(scores):
        score = scores[row.system]
        systems.append(
            {
                "system": row.system,
                "n": len(score.items),
                "coverage": row.coverage,
                "means": _intervals(row.means),
                "official": dict(score.official),
                "official_intervals": _intervals(row.official),
                "by_class": {kind: dict(values) for kind, values in score.by_type.items()},
                "official_by_class": score.details["official_by_class"],
                "failures": dict(score.failures),
                "gains": None if row.gains is None else _intervals(row.gains),
                "paired": row.paired,
            }
        )
    summary: dict[str, Any] = {"judge": first.details["judge"], "systems": systems, "quirks": list(first.quirks)}
    if chat_score is not None:
        gap = system_gap(first, chat_score)
        summary["system_1"] = {
            "system": systems[0]["system"],
            "moviecore": asdict(gap.system_2),
            "moviechat": asdict(gap.system_1),
            "moviechat_accuracy": gap.accuracy,
            "moviechat_official": dict(chat_score.official),
            "moviechat_coverage": chat_score.coverage,
            "gap": asdict(gap.gap),
            "clips": gap.clips,
        }
    if client is not None:
        summary["calls"] = client.summary
    return summary


def _intervals(found: Any) -> dict[str, Any]:
    return {name: asdict(interval) for name, interval in found.items()}


def moviecore_tables(summary: dict[str, Any]) -> list[Table]:
    from rich.markup import escape
    from rich.table import Table

    def with_bounds(values: dict[str, Any], key: str, sign: str = "") -> str:
        if key not in values:
            return "–"
        one = Interval(**values[key])
        return f"{one.mean:{sign}.2f} [{one.low:{sign}.2f}, {one.high:{sign}.2f}]"

    def table(title: str, caption: str, last: str) -> Table:
        made = Table(title=title, caption=caption)
        made.add_column("System")
        for key in COLUMNS:
            made.add_column(f"{key[:3].capitalize()}.", justify="right")
        made.add_column(last, justify="right")
        return made

    systems = summary["systems"]
    means = table(
        f"MovieCORE: {systems[0]['n']} questions, each once",
        f"0 to 5, with 95% intervals over clips. No answer and an empty one are 0. Judge: {escape(summary['judge'])}.",
        "Judged",
    )
    official = table(
        "MovieCORE: official aggregation", "A question counts in each of its classes; unjudged ones are left out.", "n"
    )
    gains = table(
        f"Gains over {escape(systems[0]['system'])}", "Paired differences, with 95% intervals over clips.", "Pairs"
    )
    for row in systems:
        name = escape(row["system"])
        means.add_row(name, *(with_bounds(row["means"], key) for key in COLUMNS), f"{row['coverage']:.1%}")
        official.add_row(name, *(f"{row['official'][key]:.2f}" for key in COLUMNS), str(row["n"]))
        if row["gains"] is not None:
            gains.add_row(name, *(with_bounds(row["gains"], key, "+") for key in COLUMNS), str(row["paired"]))
    tables = [means, official, *([gains] if gains.row_count else []), _text_table(systems), _class_table(systems)]
    if "system_1" in summary:
        tables.append(_system_table(summary["system_1"]))
    failures = _failure_table(systems)
    return [*tables, failures] if failures.row_count else tables


def _text_table(systems: Sequence[dict[str, Any]]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Text metrics")
    table.add_column("System")
    metrics = [key for key in SHOWN_TEXT_METRICS if key in systems[0]["official"]]
    for key in metrics:
        table.add_column(TITLES[key], justify="right")
    for row in systems:
        table.add_row(escape(row["system"]), *(f"{row['official'].get(key, 0.0):.4f}" for key in metrics))
    return table


def _class_table(systems: Sequence[dict[str, Any]]) -> Table:
    """Average by class: each question once in each of its classes."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Average by class")
    table.add_column("Class")
    table.add_column("n", justify="right")
    for row in systems:
        table.add_column(escape(row["system"]), justify="right")
    for kind, values in systems[0]["by_class"].items():
        averages = [row["by_class"][kind].get(AVERAGE) for row in systems]
        table.add_row(
            escape(kind), f"{values['n']:.0f}", *("–" if value is None else f"{value:.2f}" for value in averages)
        )
    return table


def _system_table(found: dict[str, Any]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title="System-2 against System-1",
        caption=f"Accuracy, 0 to 5 (MovieChat-1K: share of right answers times 5), over {found['clips']} common clips.",
    )
    for column in ("System", "MovieCORE", "MovieChat-1K", "Gap"):
        table.add_column(column, justify="left" if column == "System" else "right")
    shown = [Interval(**found[key]) for key in ("moviecore", "moviechat", "gap")]
    texts = [f"{one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]" for one in shown]
    texts[1] = f"{found['moviechat_accuracy']:.1%} ~ {texts[1]}"
    table.add_row(escape(found["system"]), *texts)
    return table


def _failure_table(systems: Sequence[dict[str, Any]]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Failures")
    for column in ("System", "Kind", "Count"):
        table.add_column(column, justify="right" if column == "Count" else "left")
    for row in systems:
        for kind, count in row["failures"].items():
            table.add_row(escape(row["system"]), escape(kind), str(count))
    return table
