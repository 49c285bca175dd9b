"""An evaluation from questions to a page: asked, written as it comes, scored by the benchmark, safe to kill.

OUT/config.json        what the answers depend on, and what they were scored with
OUT/environment.json   versions, devices, command: one entry a start
OUT/answers.jsonl      one line an answer, as it came; of shards: answers.2-of-8.jsonl
OUT/scores.json        official and strict values, intervals, coverage, by type
OUT/items.jsonl        one line an item: question, answer, what was read in it, its scores
OUT/eg_vqa_result.json (or as the benchmark names it) a file in the official form
OUT/report.html        one page, offline

    read → find videos → ask what has no answer yet → score → write
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrjax.errors import InputError, RunError
from vrjax.evaluation.answer_log import FINAL, Answer, AnswerLog, read_answers
from vrjax.evaluation.benchmark import Benchmark, BenchmarkScore, Item, Prediction, Tools
from vrjax.evaluation.evaluation_page import write_page
from vrjax.evaluation.judge_validation import load_answer_labels, validate_judge
from vrjax.evaluation.result_files import SCORES, item_rows, score_row, write_items
from vrjax.evaluation.shards import Shard
from vrjax.evaluation.subject import Asked, Subject
from vrjax.evaluation.video_files import VideoFolder
from vrjax.run_directory import CONFIG, RunDirectory, resolved

# Fields of config.json that may change between two starts: no answer depends on them.
FREE = ("subject", "data", "videos", "limit", "scoring")
FIRST = 20  # so many failures at the very beginning end a run
_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """data: in the benchmark's official form. videos: their folder; default that of the data. limit: only so many
    questions, the first. shard: only this share; default that of this JAX process. max_failed_share: of unanswered
    questions, above which the run stops. report_frames: items that the page shows frames of.
    """

    data: Path
    out: Path
    videos: Path | None = None
    limit: int | None = None
    shard: Shard | None = None
    max_failed_share: float = 0.2
    report_frames: int = 48
    human_labels: Path | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise InputError(f"--limit {self.limit} leaves no question. Give 1 or more.")
        if not 0 <= self.max_failed_share <= 1:
            raise InputError(f"--max-failed-share {self.max_failed_share} is no share. Give 0 to 1.")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How an evaluation ended. score: None where items have no labels, or other shards are not done yet; `notes` says
    which. waiting: items that are still to be answered, here or by other shards.
    """

    folder: Path
    score: BenchmarkScore | None
    waiting: int = 0
    notes: tuple[str, ...] = ()


def run(
    benchmark: Benchmark,
    subject: Subject | Callable[[], Subject] | None,
    options: EvaluationOptions,
    tools: Tools | None = None,
) -> Evaluation:
    """Evaluate, or go on where an evaluation in `options.out` was cut off.

    subject: what is asked, or a function that makes it once the data are known to be good; None: nobody is asked, the
    answers that are there are scored (shards are merged this way).

    Raises InputError for data, videos and settings that cannot be used, among them settings other than those of the
    answers that are there; RunError where too many questions stay unanswered; ChatError where an endpoint refuses all.
    """
    tools = tools or Tools()
    items = benchmark.read(options.data)
    _check_ids(items, options.data)
    selected = items[: options.limit]
    if benchmark.judged and tools.judge is None:
        raise InputError(f"{benchmark.name} is scored by a judge, but none is given. Name one with --judge.")
    if options.human_labels is not None:
        load_answer_labels(options.human_labels)  # bad labels are known before hours of answers, as is
    labelled = any(item.reference is not None for item in selected)
    if tools.similarity is not None and labelled:
        tools.similarity.prepare(_descriptions(selected))  # a sentence model that cannot be had
    folder = VideoFolder(options.videos or _folder_of(options.data))
    shard = options.shard or Shard.of_process()
    directory = RunDirectory(options.out)
    asker = subject() if callable(subject) else subject
    name = _settle(directory, benchmark, asker, items, options, tools)

    if asker is not None:
        mine = selected if shard is None else shard.take(selected)
        with AnswerLog(options.out, shard) as log:
            _ask(benchmark, asker, mine, folder, log, options)
    _await_other_processes()
    answers = read_answers(options.out)
    waiting = [item for item in selected if item.id not in answers]
    if waiting:
        where = f"{len(waiting)} of {len(selected)} questions have no answer yet"
        if asker is None or shard is None:
            raise InputError(f"{options.out}: {where} ({_names(waiting)}). Ask a model (--model or --llm).")
        note = f"{where}: other shards ask them. Once they are done, evaluate again without --shard to score all."
        return Evaluation(folder=options.out, score=None, waiting=len(waiting), notes=(note,))
    if Shard.of_process() is not None and shard is not None and shard.index != 1:
        return Evaluation(folder=options.out, score=None, notes=("the first process scores",))
    with directory.locked():
        return _finish(benchmark, selected, answers, directory, options, tools, name, folder)


def _check_ids(items: Sequence[Item], where: Path) -> None:
    if not items:
        raise InputError(f"{where}: holds no questions.")
    twice = [name for name, count in Counter(item.id for item in items).items() if count > 1]
    if twice:
        raise InputError(f"{where}: the id {twice[0]!r} occurs twice. Keep one question of each id.")


def _folder_of(data: Path) -> Path:
    return data if data.is_dir() else data.parent


def _descriptions(items: Sequence[Item]) -> list[str]:
    pieces = [piece for item in items for piece in (item.reference or {}).get("evidence", ())]
    return [piece["description"] for piece in pieces if isinstance(piece, Mapping) and "description" in piece]


def _settle(
    directory: RunDirectory,
    benchmark: Benchmark,
    subject: Subject | None,
    items: Sequence[Item],
    options: EvaluationOptions,
    tools: Tools,
) -> str:
    """Write or compare config.json, note this start, and return the subject's name."""
    with directory.locked():
        before = directory.read_json(CONFIG)
        if subject is None and before is None:
            raise InputError(f"{options.out}: holds no evaluation. Name what is to be asked (--model or --llm).")
        digest = hashlib.sha256("\n".join(f"{item.id}\t{benchmark.question(item)}" for item in items).encode())
        config: dict[str, Any] = {
            "benchmark": benchmark.name,
            "options": resolved(benchmark) if dataclasses.is_dataclass(benchmark) else {},
            "prompt": dataclasses.asdict(benchmark.prompt),
            "questions": {"count": len(items), "sha256": digest.hexdigest()},
        }
        if subject is None:
            asked = {key: value for key, value in (before or {}).items() if key not in config and key not in FREE}
            name = str((before or {}).get("subject"))
        else:
            asked, name = dict(subject.settings), subject.name
        config |= asked
        config |= {
            "subject": name,
            "data": str(options.data),
            "videos": None if options.videos is None else str(options.videos),
            "limit": options.limit,
            "scoring": {
                "judge": None if tools.judge is None else tools.judge.name,
                "similarity": None if tools.similarity is None else tools.similarity.name,
            },
        }
        directory.check_config(config, FREE)
        directory.record_environment()
    return name


def _ask(
    benchmark: Benchmark,
    subject: Subject,
    items: Sequence[Item],
    folder: VideoFolder,
    log: AnswerLog,
    options: EvaluationOptions,
) -> None:
    answers = read_answers(options.out)
    left = [item for item in items if item.id not in answers or not answers[item.id].final]
    failed = sum(item.id in answers and answers[item.id].final and answers[item.id].text is None for item in items)
    files = {item.id: folder.find(item) if item.with_video else None for item in left}
    missing = [item for item in left if item.with_video and files[item.id] is None]
    most = max(FIRST // 2, options.max_failed_share * len(items))
    if missing and (len(missing) + failed > most or len(missing) == len(items)):
        raise InputError(
            f"{folder.folder}: no video for {len(missing)} of {len(items)} questions ({_names(missing)}). Give the "
            "folder with --videos, or allow it with --max-failed-share."
        )
    lost = {item.id for item in missing}
    asked = [Asked(item.id, subject.wording(benchmark, item), files[item.id]) for item in left if item.id not in lost]
    tally = _Tally(most, failed, len(items) - len(left), len(items), f"{benchmark.name}: {subject.name}", options)
    with tally:

        def take(answer: Answer) -> None:
            log.append(answer)
            tally.saw(answer)

        for item in missing:
            take(Answer(id=item.id, error=f"no file {item.video_file or item.video} in {folder.folder}", kind="video"))
        if asked:
            subject.answer(asked, take)


class _Tally:
    """Progress with time left, and the limit on unanswered questions."""

    def __init__(self, most: float, failed: int, done: int, total: int, title: str, options: EvaluationOptions) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._most, self._failed, self._asked, self._answered = most, failed, 0, 0
        self._total, self._share = total, options.max_failed_share
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failures]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not options.progress,
        )
        self._task = self._progress.add_task(escape(title), total=total, completed=done, failures="")

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def saw(self, answer: Answer) -> None:
        # A bad video says nothing of the subject.
        self._asked += answer.text is not None or answer.kind not in FINAL or answer.kind == "no_answer"
        self._answered += answer.text is not None
        self._failed += answer.text is None
        shown = f"{self._failed} unanswered" if self._failed else ""
        self._progress.update(self._task, advance=1, failures=shown)
        if answer.text is not None:
            return
        reason = f"the last: {answer.id}: {answer.error}"
        if self._asked >= FIRST and not self._answered:
            raise RunError(f"none of the first {self._asked} questions got an answer; {reason}")
        if self._failed > self._most:
            raise RunError(
                f"{self._failed} of {self._total} questions have no answer, more than a share of {self._share:g} "
                f"(--max-failed-share); {reason}"
            )


def _await_other_processes() -> None:
    if Shard.of_process() is not None:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices("all shards have their answers")


def predictions_of(benchmark: Benchmark, items: Sequence[Item], answers: Mapping[str, Answer]) -> list[Prediction]:
    """Answers as the benchmark scores them, in the order of the items."""
    found = []
    for item in items:
        answer = answers.get(item.id)
        if answer is None:
            continue
        if answer.text is None:
            found.append(Prediction(id=item.id, error=f"{answer.kind}: {answer.error}"))
        else:
            found.append(Prediction(id=item.id, text=answer.text, parsed=benchmark.parse(item, answer.text).values))
    return found


def _finish(
    benchmark: Benchmark,
    items: Sequence[Item],
    answers: Mapping[str, Answer],
    directory: RunDirectory,
    options: EvaluationOptions,
    tools: Tools,
    name: str,
    folder: VideoFolder,
) -> Evaluation:
    predictions = predictions_of(benchmark, items, answers)
    benchmark.write_submission(options.out / benchmark.submission, items, predictions)
    notes = []
    passing = [item for item in items if not answers[item.id].final]
    if passing:
        notes.append(
            f"{len(passing)} questions failed for reasons that may pass ({_names(passing)}); start again to ask them."
        )
    cut = sum(not answers[item.id].finished for item in items)
    if cut:
        notes.append(f"{cut} answers reached the limit of tokens before they ended.")
    wording = (directory.read_json(CONFIG) or {}).get("wording", "benchmark")
    extra = {"cut_off": cut, "wording": "benchmark" if wording == "benchmark" else "checkpoint"}
    score, more = score_and_write(
        benchmark, items, predictions, directory, tools, name, options.human_labels, folder, options.report_frames,
        extra, options.progress,
    )  # fmt: skip
    return Evaluation(folder=options.out, score=score, notes=(*notes, *more))


def score_and_write(
    benchmark: Benchmark,
    items: Sequence[Item],
    predictions: Sequence[Prediction],
    directory: RunDirectory,
    tools: Tools,
    name: str,
    human_labels: Path | None = None,
    folder: VideoFolder | None = None,
    report_frames: int = 0,
    more: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> tuple[BenchmarkScore | None, list[str]]:
    """Score predictions and write scores.json, items.jsonl and report.html.

    Returns (None, why not) where no item has labels.
    """
    if all(item.reference is None for item in items):
        return None, [f"{benchmark.name}: these questions have no labels, so nothing can be scored here. The answers "
                      f"are in {directory.path / benchmark.submission}."]  # fmt: skip
    score = score_with_progress(benchmark, items, predictions, tools, progress)
    extra = dict(more or {})
    if human_labels is not None:
        judged = {one.id: one.notes.get("label") for one in score.items}
        extra["judge_validation"] = validate_judge(load_answer_labels(human_labels), judged, human_labels)
    rows = item_rows(benchmark, items, predictions, score)
    summary = score_row(benchmark, name, score, **extra)
    write_items(directory, rows)
    directory.write_json(SCORES, summary)
    write_page(directory.path / "report.html", summary, rows, items, folder, report_frames)
    return score, []


def score_with_progress(
    benchmark: Benchmark, items: Sequence[Item], predictions: Sequence[Prediction], tools: Tools, progress: bool
) -> BenchmarkScore:
    """`Benchmark.score`, with a bar while a judge is at work."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=not (progress and tools.judge is not None)) as bar:
        task = bar.add_task("judging", total=None)
        told = dataclasses.replace(tools, progress=lambda done, total: bar.update(task, completed=done, total=total))
        return asyncio.run(_scored(benchmark, items, predictions, told))


async def _scored(
    benchmark: Benchmark, items: Sequence[Item], predictions: Sequence[Prediction], tools: Tools
) -> BenchmarkScore:
    try:
        return await benchmark.score(items, predictions, tools)
    finally:
        close = getattr(tools.judge, "aclose", None)
        if close is not None:
            await close()


def _names(items: Sequence[Item]) -> str:
    shown = ", ".join(item.id for item in items[:_SHOWN])
    return shown if len(items) <= _SHOWN else f"{shown} and {len(items) - _SHOWN} more"
