"""`vrjax-data cognitive`: how deep the questions and answers of datasets are."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import tyro

from data_tools.language_models import CallOptions, ModelOptions

if TYPE_CHECKING:
    from data_tools.cognitive.bloom import BloomLevels
    from data_tools.cognitive.question_files import QuestionAnswer
    from data_tools.cognitive.summary import Dataset
    from data_tools.cognitive.text_measures import TextMeasure
    from vrjax.llm import ChatClient

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
LOUD_SHARE = 0.1  # of texts that count 0 by the rule `released`
WINDOW = 500  # questions read, measured and judged together


@dataclass(frozen=True)
class Cognitive:
    """Measure parse depth, Flesch-Kincaid grade, Bloom level and the share of higher-order questions and answers.

    A file is a dataset: EG-VQA, MovieCORE, MovieChat-1K, ActivityNet-QA (test_q.json with test_a.json beside it),
    EgoSchema, NExT-GQA, ReXTime, or any rows with `question` and `answer`. Bloom levels need a language model.

    The grade depends on how syllables of rare words are counted; `released` is what textstat 0.7.7 gives as it installs
    today, where one unknown word makes a text count 0. All three grades are printed.

    Examples::

        vrjax-data cognitive moviechat/train.json activitynet_qa/test_q.json
        vrjax-data cognitive questions.jsonl --json
        vrjax-data cognitive moviecore.json --llm openai:gpt-4o-mini --out runs/cognitive
    """

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Files with questions and answers."""
    grade_rule: Literal["released", "dictionary", "hyphenation"] = "released"
    """How syllables are counted for `flesch_kincaid`."""
    depth: Literal["mean", "largest"] = "mean"
    """Depth of a text: the mean over its sentences, or the deepest."""
    out: Path | None = None
    """Folder for cognitive.json, table.md, texts.jsonl and report.html (distributions, word cloud)."""
    workers: int = 0
    """Processes that parse; 0: one a core."""
    published: bool = True
    """Show the published rows of MovieCORE's Table 1 below."""
    json: Flag = False
    """Print JSON instead of a table."""
    model: Annotated[ModelOptions, tyro.conf.arg(name="")] = field(default_factory=ModelOptions)
    calls: Annotated[CallOptions, tyro.conf.arg(name="")] = field(default_factory=CallOptions)

    def run(self) -> int:
        import json

        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        from data_tools.cognitive.question_files import dataset_files
        from data_tools.cognitive.summary import HEADINGS, pooled, table_rows, zero_note
        from vrjax.errors import InputError
        from vrjax.evaluation.official_files import write_whole

        if not self.files:
            raise InputError("no file is given. Name at least one file with questions.")
        console = Console(stderr=True)
        files = dataset_files(self.files)
        datasets, words = self._measure(files, partial(console.print, soft_wrap=True))
        whole = pooled(datasets)
        summaries = [whole] if len(datasets) == 1 else [one.summary() for one in datasets]
        result = {**whole, "datasets": summaries}
        rows = table_rows(summaries, self.published)
        if self.out is not None:
            from data_tools.cognitive.figures import word_cloud, write_page

            lines = ["| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|"]
            lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
            write_whole(
                {
                    self.out / "cognitive.json": json.dumps(result, indent=1) + "\n",
                    self.out / "table.md": "\n".join(lines) + "\n",
                }
            )
            write_page(self.out / "report.html", datasets, summaries, word_cloud(words))
        for one in summaries:
            if warning := _zero_warning(one):
                console.print(warning, markup=False, highlight=False, soft_wrap=True)
        if self.json:
            print(json.dumps(result, indent=1))
            return 0
        table = Table(title="Syntax and cognitive demand (MovieCORE, Table 1)")
        for heading in HEADINGS:
            table.add_column(heading, justify="left" if heading == "Dataset" else "right")
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)
        for one in summaries:
            for note in (_side_notes(one, "questions"), _side_notes(one, "answers"), zero_note(one)):
                if note:
                    Console().print(note, markup=False, highlight=False, soft_wrap=True)
            if one["bloom_failures"]:
                Console().print(f"{one['dataset']}: without a Bloom level: {one['bloom_failures']}", markup=False)
        return 0

    def _measure(self, files: list[Path], say: Any) -> tuple[list[Dataset], Counter[str]]:
        """Read, parse and judge all files in one stream, so that processes start once."""
        import asyncio

        from data_tools.cognitive.question_files import read_questions
        from data_tools.cognitive.summary import Dataset
        from data_tools.cognitive.text_measures import measure_texts

        names = _names(files)
        datasets = [Dataset(name, self.grade_rule, self.depth) for name in names]
        words: Counter[str] = Counter()
        client = self._client(files, say) if self.model.llm is not None else None
        # Read twice in step: by the parsers, which run ahead, and here, where measures meet their questions.
        texts = (text for path in files for pair in read_questions(path) for text in _texts(pair))
        measures = measure_texts(texts, self.workers or os.cpu_count() or 1)
        with asyncio.Runner() as runner, closing(_lines_file(self.out)) as log:
            for dataset, path in zip(datasets, files, strict=True):
                for window in _windows(read_questions(path)):
                    levels: list[BloomLevels | None] = [None] * len(window)
                    if client is not None:
                        from data_tools.cognitive.bloom import bloom_levels

                        levels = list(runner.run(bloom_levels(client, window)))
                    for pair, level in zip(window, levels, strict=True):
                        question = next(measures)
                        answer = None if pair.answer is None else next(measures)
                        dataset.add(pair, question, answer, level)
                        if self.out is not None:
                            words.update(_words(pair))
                            log.write(_line(dataset.name, pair, question, answer, level, self))
            if client is not None:
                runner.run(client.aclose())
        return datasets, words

    def _client(self, files: list[Path], say: Any) -> ChatClient:
        from data_tools.cognitive.bloom import REPLY_TOKENS, bloom_request
        from data_tools.cognitive.question_files import read_questions
        from data_tools.cost_estimate import estimate

        folder = (self.out or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vrjax") / "replies"
        client = self.calls.client(self.model, folder)
        unique = dict.fromkeys((pair.question, pair.answer) for path in files for pair in read_questions(path))
        requests = [bloom_request(_pair(*texts)) for texts in unique if texts[0].strip()]
        left = [request for request in requests if not client.kept(request)]
        told = estimate(left, REPLY_TOKENS, self.model.price, len(requests) - len(left))
        say(f"Bloom levels by {client.name}: {told}", markup=False, highlight=False)
        return client


def _pair(question: str, answer: str | None) -> QuestionAnswer:
    from data_tools.cognitive.question_files import QuestionAnswer

    return QuestionAnswer("", question, answer)


def _names(files: list[Path]) -> list[str]:
    """A short name a file: folder and stem, in full where two are alike."""
    short = [f"{path.resolve().parent.name}/{path.stem}" for path in files]
    return [name if short.count(name) == 1 else str(path) for name, path in zip(short, files, strict=True)]


def _texts(pair: QuestionAnswer) -> list[str]:
    return [pair.question] if pair.answer is None else [pair.question, pair.answer]


def _windows(pairs: Iterable[QuestionAnswer]) -> Iterator[list[QuestionAnswer]]:
    from itertools import islice

    stream = iter(pairs)
    while window := list(islice(stream, WINDOW)):
        yield window


def _words(pair: QuestionAnswer) -> Iterator[str]:
    import re

    for text in _texts(pair):
        yield from (word.strip("'’") for word in re.findall(r"[^\W\d_][\w'’-]*", text.lower()))


def _lines_file(out: Path | None) -> TextIO:
    import io

    from vrjax.errors import RunError

    if out is None:
        return io.StringIO()
    try:
        out.mkdir(parents=True, exist_ok=True)
        return (out / "texts.jsonl").open("w", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise RunError(f"{out}: cannot be written ({error.strerror}). Check the folder.") from error


def _line(
    dataset: str,
    pair: QuestionAnswer,
    question: TextMeasure,
    answer: TextMeasure | None,
    level: BloomLevels | None,
    options: Cognitive,
) -> str:
    import json

    row: dict[str, Any] = {"dataset": dataset, "video": pair.video}
    for name, text, measure in (("question", pair.question, question), ("answer", pair.answer, answer)):
        if measure is not None:
            row[name] = {
                "text": text,
                "parse_depth": measure.mean_depth if options.depth == "mean" else measure.largest_depth,
                "flesch_kincaid": measure.counts.grade(options.grade_rule),
                "unknown_words": measure.counts.unknown,
                "bloom": None if level is None else getattr(level, name),
            }
    if level is not None and level.failure:
        row["bloom_failure"] = level.failure
    return json.dumps(row, ensure_ascii=False) + "\n"


def _zero_warning(one: dict[str, Any]) -> str:
    """What to say where the rule `released` makes a mean of zeros; nothing where it does not."""
    from data_tools.cognitive.summary import zero_note

    shares = [one[side]["share_counted_zero"] for side in ("questions", "answers")]
    note = zero_note(one)
    return f"warning: {note} Give --grade-rule dictionary for that." if note and max(shares) >= LOUD_SHARE else ""


def _side_notes(one: dict[str, Any], side: str) -> str:
    figures = one[side]
    texts = f"{figures['texts']} texts ({figures['empty']} empty)"
    intervals = ", ".join(f"{name} {low:.2f} to {high:.2f}" for name, (low, high) in figures["intervals"].items())
    grades = ", ".join(f"{name} {value:.2f}" for name, value in figures["flesch_kincaid_by_rule"].items())
    note = f"{one['dataset']}, {side}: {texts}; 95%: {intervals or 'none'}; grade by rule: {grades or 'none'}"
    return note
