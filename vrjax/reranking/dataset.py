"""ACE over a benchmark: candidates and scores of every question kept, so that widths and read-outs compare offline.

    OUT/config.json        what the candidates depend on
    OUT/candidates.jsonl   one line a question and beam width: its candidates, best beam first
    OUT/scores.jsonl       one line a question, beam width and read-out: the scorer's opinions
    OUT/predictions/k5_top_beam, k5_expected_digit, …   in the benchmark's official form
    OUT/summary.json       by width and read-out: how many winners are not the top beam, how many were undecided

Safe to kill at any time: what is there is not made again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Benchmark, Item, Prediction
from vrjax.evaluation.responder import Ask, Reply, Responder
from vrjax.evaluation.video_files import VideoFolder
from vrjax.generation.beam_search import BeamOptions
from vrjax.reranking.ace import choose
from vrjax.reranking.scorer import PROMPT_VERSION, ReadOut, Scorer
from vrjax.run_directory import RunDirectory

CANDIDATES, SCORES, SUMMARY, PREDICTIONS = "candidates.jsonl", "scores.jsonl", "summary.json", "predictions"
TOP_BEAM = "top_beam"
AT_ONCE = 16

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class AceOptions:
    """widths: beams to search with, each a search of its own. beams: all else about the search."""

    out: Path
    widths: tuple[int, ...] = (5,)
    beams: BeamOptions = field(default_factory=lambda: BeamOptions(max_tokens=256))

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1 or len(set(self.widths)) < len(self.widths):
            raise InputError(f"beam widths {self.widths} must be different numbers of at least 1.")


def rerank_benchmark(
    benchmark: Benchmark,
    items: Sequence[Item],
    videos: VideoFolder,
    responder: Callable[[], Responder],
    scorers: Mapping[ReadOut, Callable[[], Scorer]],
    settings: Mapping[str, Any],
    options: AceOptions,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Search, score and choose, or go on where that was cut off; returns the summary.

    responder, scorers: made when first needed, so that a finished part loads no model. settings: what names the models,
    for config.json. Raises InputError where OUT holds candidates made with other settings, or a video is not there.
    """
    directory = RunDirectory(options.out)
    _settle(directory, benchmark, settings, options)
    known = {item.id: item for item in items}
    for width in options.widths:
        have = {row["id"] for row in directory.read_lines(CANDIDATES) if row["width"] == width}
        _search(
            [item for item in items if item.id not in have],
            width,
            benchmark,
            videos,
            responder,
            directory,
            options,
            progress,
        )
    rows = [row for row in directory.read_lines(CANDIDATES) if row["id"] in known and row["width"] in options.widths]
    for read_out, make in scorers.items():
        have = {(row["id"], row["width"]) for row in directory.read_lines(SCORES) if row["read_out"] == read_out}
        unscored = [row for row in rows if row["candidates"] and (row["id"], row["width"]) not in have]
        _score(unscored, read_out, make, known, directory, progress)
    return _finish(benchmark, items, rows, tuple(scorers), directory, options)


def _settle(directory: RunDirectory, benchmark: Benchmark, settings: Mapping[str, Any], options: AceOptions) -> None:
    beams = {name: value for name, value in asdict(options.beams).items() if name not in ("beams", "returned")}
    wanted = {
        "benchmark": benchmark.name,
        "prompt": asdict(benchmark.prompt),
        "beams": beams,
        "scorer_prompt": PROMPT_VERSION,
        **settings,
    }
    directory.check_config(wanted)
    directory.record_environment()
    for name in (CANDIDATES, SCORES):  # a last line that a kill cut short goes
        directory.keep_until(name, 0)


def _search(
    items: Sequence[Item],
    width: int,
    benchmark: Benchmark,
    videos: VideoFolder,
    responder: Callable[[], Responder],
    directory: RunDirectory,
    options: AceOptions,
    progress: Progress | None,
) -> None:
    """Candidates of the items that have none yet, written as they come."""
    if not items:
        return
    asks = []
    for item in items:
        video = videos.find(item)
        if video is None:
            row = {"id": item.id, "width": width, "candidates": [], "error": f"{item.video}: there is no such video"}
            directory.append(CANDIDATES, [row])
            continue
        asks.append(Ask(item.id, benchmark.question(item), video))
    done = 0

    def write(reply: Reply) -> None:
        nonlocal done
        candidates = [{"text": one.text, "beam_score": one.score, "finished": one.finished} for one in reply.beams]
        error = {} if reply.problem is None else {"error": reply.problem}
        directory.append(CANDIDATES, [{"id": reply.ask.name, "width": width, "candidates": candidates, **error}])
        done += 1
        if progress is not None:
            progress(f"{width} beams", done, len(asks))

    if asks:
        beams = BeamOptions(**{**asdict(options.beams), "beams": width, "returned": None})
        responder().search(asks, beams, on_reply=write)


def _score(
    rows: Sequence[Mapping[str, Any]],
    read_out: ReadOut,
    make: Callable[[], Scorer],
    items: Mapping[str, Item],
    directory: RunDirectory,
    progress: Progress | None,
) -> None:
    if not rows:
        return
    scorer = make()
    done = 0
    for batch in _batches(rows, AT_ONCE):
        texts = [(items[row["id"]].question, [one["text"] for one in row["candidates"]]) for row in batch]
        for row, scored in zip(batch, scorer.score(texts), strict=True):
            line = {
                "id": row["id"], "width": row["width"], "read_out": read_out, "scores": [one.score for one in scored],
                "notes": [one.note for one in scored if one.note], "cut": sum(one.cut for one in scored),
            }  # fmt: skip
            directory.append(SCORES, [line])
        done += len(batch)
        if progress is not None:
            progress(read_out, done, len(rows))


def _batches(rows: Sequence[Mapping[str, Any]], size: int) -> Iterator[Sequence[Mapping[str, Any]]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _finish(
    benchmark: Benchmark,
    items: Sequence[Item],
    rows: Sequence[Mapping[str, Any]],
    read_outs: Sequence[ReadOut],
    directory: RunDirectory,
    options: AceOptions,
) -> dict[str, Any]:
    """Predictions of every width and read-out in the official form, and the summary."""
    by_width: dict[int, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        by_width[row["width"]][row["id"]] = row
    scores = {(row["id"], row["width"], row["read_out"]): row for row in directory.read_lines(SCORES)}
    summary: dict[str, Any] = {"questions": len(items), "unanswered": {}, "choices": {}}
    for width in options.widths:
        found = by_width[width]
        summary["unanswered"][str(width)] = sum(not found[item.id]["candidates"] for item in items)
        _write(benchmark, items, {name: 0 for name in found}, found, directory, f"k{width}_{TOP_BEAM}")
        for read_out in read_outs:
            mine = {name: scores.get((name, width, read_out)) for name in found}
            winners = {name: choose(row["scores"]) if row else 0 for name, row in mine.items()}
            _write(benchmark, items, winners, found, directory, f"k{width}_{read_out}")
            read = [row for row in mine.values() if row]
            summary["choices"][f"k{width}_{read_out}"] = {
                "not_the_top_beam": sum(winner > 0 for winner in winners.values()),
                "undecided": sum(all(score is None for score in row["scores"]) for row in read),
                "unread_candidates": sum(score is None for row in read for score in row["scores"]),
                "tokens_cut": sum(row["cut"] for row in read),
            }
    directory.write_json(SUMMARY, summary)
    return summary


def _write(
    benchmark: Benchmark,
    items: Sequence[Item],
    winners: Mapping[str, int],
    found: Mapping[str, Mapping[str, Any]],
    directory: RunDirectory,
    name: str,
) -> None:
    predictions = []
    for item in items:
        row = found[item.id]
        if row["candidates"]:
            predictions.append(Prediction(id=item.id, text=row["candidates"][winners[item.id]]["text"]))
        else:
            predictions.append(Prediction(id=item.id, error=row.get("error", "there is no candidate")))
    folder = directory.path / PREDICTIONS / name
    folder.mkdir(parents=True, exist_ok=True)
    benchmark.write_submission(folder / benchmark.submission, items, predictions)
