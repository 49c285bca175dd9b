"""Scoring files in a benchmark's official form, without a model: one system's, or several annotators'."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Benchmark, BenchmarkScore, Item, Tools
from vrjax.evaluation.evaluation_page import write_page
from vrjax.evaluation.result_files import SCORES, item_rows, score_row, write_items
from vrjax.evaluation.runner import score_and_write, score_with_progress
from vrjax.evaluation.several_annotators import average_scores, joined_rows
from vrjax.evaluation.video_files import VideoFolder
from vrjax.run_directory import RunDirectory


def score_submissions(
    benchmark: Benchmark,
    data: Path,
    files: Sequence[Path],
    tools: Tools,
    *,
    out: Path | None = None,
    videos: Path | None = None,
    name: str | None = None,
    limit: int | None = None,
    human_labels: Path | None = None,
    report_frames: int = 0,
    progress: bool = False,
) -> BenchmarkScore:
    """Score one file, or several and average them (a human study).

    out: folder for scores.json, items.jsonl and report.html; with several files also OUT/annotators/NAME of each. name:
    of the system, default the file's. Raises InputError as the benchmark's reader and scorer do, where two files have
    one name, and where the questions have no labels.
    """
    all_items = benchmark.read(data)
    items = all_items[:limit]
    if all(item.reference is None for item in items):
        raise InputError(f"{data}: these questions have no labels, so {files[0]} cannot be scored here.")
    folder = None if videos is None else VideoFolder(videos)
    by_name = {path.stem: path for path in files}
    if len(by_name) < len(files):
        raise InputError("two files of predictions have the same name. Rename one: it is the annotator's.")
    known = {item.id for item in items}
    read = {}
    for stem, path in by_name.items():
        predictions = benchmark.read_submission(path, all_items)  # so that an id beyond the limit is no unknown one
        read[stem] = [prediction for prediction in predictions if prediction.id in known]
    if len(files) == 1:
        ((stem, predictions),) = read.items()
        if out is None:
            return score_with_progress(benchmark, items, predictions, tools, progress)
        score, _ = score_and_write(
            benchmark, items, predictions, RunDirectory(out), tools, name or stem, human_labels, folder, report_frames,
            progress=progress,
        )  # fmt: skip
        assert score is not None
        return score
    if human_labels is not None:
        raise InputError("--human-labels belong to one file of predictions. Give only one.")
    scores = {stem: score_with_progress(benchmark, items, found, tools, progress) for stem, found in read.items()}
    average = average_scores(scores)
    if out is not None:
        rows = {stem: item_rows(benchmark, items, read[stem], scores[stem]) for stem in read}
        for stem, score in scores.items():
            _write(benchmark, RunDirectory(out / "annotators" / stem), stem, score, rows[stem], items, folder, 0)
        title = name or f"{len(files)} annotators"
        joined = joined_rows(rows, average)
        _write(benchmark, RunDirectory(out), title, average, joined, items, folder, report_frames)
    return average


def _write(
    benchmark: Benchmark,
    directory: RunDirectory,
    name: str,
    score: BenchmarkScore,
    rows: Sequence[dict],
    items: Sequence[Item],
    folder: VideoFolder | None,
    frames: int,
) -> None:
    summary = score_row(benchmark, name, score)
    write_items(directory, rows)
    directory.write_json(SCORES, summary)
    write_page(directory.path / "report.html", summary, rows, items, folder, frames)
