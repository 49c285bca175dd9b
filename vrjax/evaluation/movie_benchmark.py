"""What MovieCORE and MovieChat-1K share: questions about the same clips, open answers, a judge with the reference."""

from __future__ import annotations

import asyncio
import json
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vrjax.errors import InputError, listed
from vrjax.evaluation.benchmark import Benchmark, BenchmarkScore, Item, ItemScore, Parsed, Prediction, PromptForm, Tools
from vrjax.evaluation.movie_questions import (
    MovieQuestion,
    load_movie_folder,
    load_movie_questions,
    match_questions,
    without_end_token,
)
from vrjax.llm.chat import Chat

NO_ANSWER, EMPTY_ANSWER = "no answer", "empty answer"
# What verdicts that stand in a file without a judge's name are kept under.
UNNAMED = "recorded"
Verdict = Mapping[str, Any]
PLAIN_QUESTION = PromptForm(name="question", version=1, template="{question}")


@dataclass(frozen=True, kw_only=True)
class MovieItem(Item):
    """classification: classes as the file has them. time: seconds into the clip when it is asked; None: after it."""

    classification: str = ""
    time: float | None = None


@dataclass(frozen=True, kw_only=True)
class MovieBenchmark(Benchmark):
    """split: which file of a folder is read. recorded: whose verdicts count where a file holds several judges' and none
    is asked now. prompt: the words around a question.
    """

    split: str = "test"
    recorded: str | None = None
    prompt: PromptForm = PLAIN_QUESTION

    judged = True

    def read(self, data: Path) -> list[Item]:
        """Questions of a file in any form of movie_questions, or of a folder with `{split}.json` or one file a clip."""
        data = Path(data)
        found = load_movie_folder(data, self.split) if data.is_dir() else load_movie_questions(data)
        items: list[Item] = [self._item(question) for question in found if self.takes(question)]
        if not items:
            raise InputError(f"{data}: holds none of the questions that this evaluation is about. Give another file.")
        return items

    def takes(self, question: MovieQuestion) -> bool:
        """Whether a question of the files belongs to the benchmark."""
        return question.time is None

    def question(self, item: Item) -> str:
        return self.prompt.template.replace("{question}", item.question)

    def parse(self, item: Item, text: str) -> Parsed:
        """The answer is the text, without the end token `</s>` that the official scorer takes out."""
        answer = without_end_token(text)
        return Parsed(values={"answer": answer}, failure=None if answer else EMPTY_ANSWER)

    def read_submission(self, path: Path, items: Sequence[Item]) -> list[Prediction]:
        """Answers of a file in any form of movie_questions, found by clip and wording. Rows without `pred` are missing.

        Raises InputError where the file holds no answer at all, a question is unknown or answered twice, or a recorded
        verdict is not in the form of the benchmark.
        """
        rows = [row for row in load_movie_questions(path) if self.takes(row)]
        found = match_questions(rows, [(item.id, item.video, item.question) for item in items], path)
        predictions = []
        for item in items:
            row = found.get(item.id)
            if row is not None and (row.pred is not None or row.judged):
                judged = self._recorded(row.judged, f"{path}: record {row.id}: judged")
                predictions.append(Prediction(id=item.id, text=row.pred, judged=judged))
        if all(prediction.text is None for prediction in predictions):
            raise InputError(f"{path}: no record has a field `pred`. Give a file with a model's answers.")
        return predictions

    def write_submission(self, path: Path, items: Sequence[Item], predictions: Sequence[Prediction]) -> None:
        """The official form, with a field `judged` where there are verdicts. Questions without an answer stay out."""
        by_id = self._by_id(items, predictions)
        rows: dict[str, list[dict[str, Any]]] = {}
        for item in items:
            prediction = by_id.get(item.id)
            if prediction is not None and prediction.text is not None:
                rows.setdefault(_submitted_name(item), []).append(self._row(item, prediction))
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        # Lone surrogates of broken replies are legal in JSON's escapes, not in UTF-8.
        partial.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, path)

    async def judge_predictions(
        self,
        items: Sequence[Item],
        predictions: Sequence[Prediction],
        chat: Chat,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Prediction]:
        """The predictions with this judge's verdicts added to `judged`; what is there already is not asked again.

        A judge that fails leaves a score of None, with the reason. progress: called with (answers done, answers there).
        """
        by_id = self._by_id(items, predictions)
        answers = {item.id: item for item in items if item.id in by_id and by_id[item.id].text is not None}
        name = self.judge_name(chat)
        done = 0

        async def one(prediction: Prediction) -> Prediction:
            nonlocal done
            item = answers.get(prediction.id)
            if item is None:
                return prediction
            verdict = await self._judge(chat, item, self._answer(item, prediction), prediction.judged.get(name, {}))
            done += 1
            if progress is not None:
                progress(done, len(answers))
            return replace(prediction, judged={**prediction.judged, name: verdict})

        return list(await asyncio.gather(*(one(prediction) for prediction in predictions)))

    async def score(self, items: Sequence[Item], predictions: Sequence[Prediction], tools: Tools) -> BenchmarkScore:
        """Score with the verdicts of `tools.judge`, or, without one, with those that the predictions hold.

        Raises InputError where an item has no reference answer, an id is unknown or occurs twice, or there are neither
        a judge nor recorded verdicts, or those of several judges.
        """
        unlabelled = [item.id for item in items if item.reference is None]
        if unlabelled:
            raise InputError(
                f"{self.name}: no reference answer for {listed(unlabelled)}. Such a set cannot be scored here; write a "
                "submission from it instead."
            )
        self._by_id(items, predictions)
        if tools.judge is not None:
            name = self.judge_name(tools.judge)
            predictions = await self.judge_predictions(items, predictions, tools.judge, tools.progress)
        else:
            name = self._recorded_judge(predictions)
        return self._score(items, self._by_id(items, predictions), name)

    @abstractmethod
    def judge_name(self, chat: Chat) -> str:
        """What the verdicts of a chat are kept under."""

    @abstractmethod
    async def _judge(self, chat: Chat, item: Item, answer: str, have: Verdict) -> Verdict:
        """A whole verdict on one answer; `have`: what of it is there."""

    @abstractmethod
    def _one_recorded(self, verdict: Any, where: str) -> Verdict:
        """A verdict of a file, checked. InputError names `where` and the field."""

    @abstractmethod
    def _is_verdict(self, keys: frozenset[str]) -> bool:
        """Whether these are the fields of a verdict, rather than names of judges."""

    @abstractmethod
    def _score(self, items: Sequence[Item], predictions: Mapping[str, Prediction], judge: str) -> BenchmarkScore: ...

    def _item(self, question: MovieQuestion) -> MovieItem:
        return MovieItem(
            id=question.id,
            video=question.video,
            question=question.question,
            types=question.classes,
            duration=question.duration,
            video_file=question.video_file,
            reference=None if question.answer is None else {"answer": question.answer},
            classification=question.classification,
            time=question.time,
        )

    def _row(self, item: Item, prediction: Prediction) -> dict[str, Any]:
        row = {"question": item.question, "answer": reference_of(item), "pred": prediction.text}
        if classification := classification_of(item):
            row["classification"] = classification
        return {**row, "judged": prediction.judged} if prediction.judged else row

    def _answer(self, item: Item, prediction: Prediction) -> str:
        return self.parse(item, prediction.text or "").values["answer"]

    def _recorded(self, judged: Mapping[str, Any], where: str) -> dict[str, Verdict]:
        if judged and self._is_verdict(frozenset(judged)):
            judged = {UNNAMED: judged}
        return {name: self._one_recorded(verdict, f"{where}: {name}") for name, verdict in judged.items()}

    def _recorded_judge(self, predictions: Sequence[Prediction]) -> str:
        names = sorted({name for prediction in predictions for name in prediction.judged})
        if self.recorded is not None:
            if self.recorded not in names:
                raise InputError(f"{self.name}: no verdicts of {self.recorded!r}; there are {names or 'none'}.")
            return self.recorded
        if len(names) != 1:
            raise InputError(
                f"{self.name}: the verdicts are of several judges: {names}. Name one (--judged-by)."
                if names
                else f"{self.name} is scored by a judge, and the predictions hold no verdicts. Name one (--judge)."
            )
        return names[0]

    def _by_id(self, items: Sequence[Item], predictions: Sequence[Prediction]) -> dict[str, Prediction]:
        counts = Counter(prediction.id for prediction in predictions)
        known = {item.id for item in items}
        if unknown := [name for name in counts if name not in known]:
            raise InputError(f"{self.name}: no such questions: {listed(unknown)}. Give the split that was answered.")
        if twice := [name for name, count in counts.items() if count > 1]:
            raise InputError(
                f"{self.name}: answered more than once: {listed(twice)}. Keep one answer to each question."
            )
        return {prediction.id: prediction for prediction in predictions}


def reference_of(item: Item) -> str:
    """The reference answer; empty where there is none."""
    return (item.reference or {}).get("answer", "")


def classification_of(item: Item) -> str:
    """Classes as the file has them, which the official scorers count by."""
    return item.classification if isinstance(item, MovieItem) else ", ".join(item.types)


def failed(prediction: Prediction | None) -> str | None:
    """The kind of failure where there is no answer, else None."""
    if prediction is not None and prediction.text is not None:
        return None
    return NO_ANSWER if prediction is None or prediction.error is None else prediction.error.split(":")[0]


def no_verdict(note: str) -> str:
    """The kind of failure where a judge gave no verdict; its note starts with the kind of its own."""
    return f"no verdict: {note.split(':')[0]}" if note else "no verdict"


def means(scores: Sequence[ItemScore], metrics: Sequence[str]) -> dict[str, float]:
    """ "n", and the mean of each metric over the items that have it; without any it has no entry."""
    found = {"n": float(len(scores))}
    for metric in metrics:
        values = [value for one in scores if (value := one.values[metric]) is not None]
        if values:
            found[metric] = sum(values) / len(values)
    return found


def _submitted_name(item: Item) -> str:
    """The name of a clip's file in the official form, which has an ending."""
    file = item.video_file or item.video
    return f"{file}.mp4" if file == item.video else file
