"""EG-VQA: open questions whose answers must show their evidence (github.com/HCPLab-SYSU/EG-VQA, test split).

The response is parsed and scored by `vrjax.evidence`, as in rewards. Answers are labelled by a judge (appendix D.2), or
by a rule where none is configured; a result file's own `answer_score` stands where it has them and there is no judge.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import (
    Benchmark,
    BenchmarkScore,
    Item,
    ItemScore,
    Parsed,
    Prediction,
    PromptForm,
    Tools,
)
from vrjax.evaluation.intervals import clustered_intervals
from vrjax.evaluation.mismatch import other_video
from vrjax.evidence import (
    EVIDENCE_INSTRUCTION,
    QuestionScore,
    Response,
    ScoredItem,
    exact_match,
    parse_response,
    reference_evidence,
    score_questions,
    summarise,
    token_f1,
)
from vrjax.evidence.result_file import error_name, load_results
from vrjax.evidence.scoring import SUMMARY_KEYS
from vrjax.llm.judge import AnswerJudge, Judgement
from vrjax.records import Question, VideoRecord, load_records
from vrjax.run_directory import RunDirectory
from vrjax.video import FrameOptions

Condition = Literal["full", "question_only", "mismatched"]
STRICT_KEYS = ("format", "answer_strict", "answer_relaxed", *SUMMARY_KEYS, "gas")


@dataclass(frozen=True, kw_only=True)
class EgVqaItem(Item):
    """With the record that it comes from, for result files and the judge."""

    record: VideoRecord
    asked: Question


@dataclass(frozen=True)
class _Verdict:
    """strict, relaxed: 1 or 0, and in [0, 1]; None: the judge gave no verdict. label, note: the judge's."""

    strict: float | None
    relaxed: float | None
    label: str | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class EgVqa(Benchmark):
    """condition: `full` as recorded, `question_only` no video, `mismatched` another record's video (table 11).

    seed: of the mismatch; each video is shown for one other. rule: what answers score without a judge, `token_f1` in
    [0, 1], or `exact` 1 or 0; neither is comparable with the paper's.
    """

    condition: Condition = "full"
    seed: int = 0
    rule: Literal["token_f1", "exact"] = "token_f1"

    name = "eg_vqa"
    headline = "avg_eg_f1"
    compared = True
    prompt = PromptForm(name="evidence, reasoning, answer", version=1, template="{question}" + EVIDENCE_INSTRUCTION)
    # The released pipeline: 32 pictures with a clock drawn in, at most 200,704 pixels each in evaluation.
    frames = FrameOptions(
        frames=32, min_pixels=75_264, max_pixels=200_704, total_pixels=None, frames_as_images=True, draw_clock=True
    )
    submission = "eg_vqa_result.json"
    table = MappingProxyType(
        {
            "Strict": "answer_strict",
            "Relaxed": "answer_relaxed",
            "Avg. F1": "avg_event_f1",
            "Avg. EG-F1": "avg_eg_f1",
            "GAS": "gas",
        }
    )
    answering = "answer_relaxed"
    grounding = ("eg_f1_0.3_0.5", 1e-9)  # any piece of evidence found

    def read(self, data: Path) -> list[Item]:
        """All questions of a file of records, or of `test.json` in a folder."""
        path = _file_of(Path(data))
        records = load_records(path)
        files = [record.video_path for record in records]
        if self.condition == "mismatched":
            files = [files[other] for other in other_video(len(files), self.seed)]
        items: list[Item] = []
        videos: dict[str, str] = {}
        for record, file in zip(records, files, strict=True):
            for question in record.questions:
                name = question.question_id
                if name in videos:
                    raise InputError(f"{path}: question_id {name!r} occurs in two videos. Rename one.")
                videos[name] = record.video_id
                items.append(self._item(record, question, file, path))
        if not items:
            raise InputError(f"{path}: holds no questions. Give the file of a split.")
        return items

    def _item(self, record: VideoRecord, question: Question, file: str, path: Path) -> EgVqaItem:
        given = {"answer", "evidence"} & question.model_fields_set
        if len(given) == 1:
            lacking = ({"answer", "evidence"} - given).pop()
            raise InputError(
                f"{path}: {question.question_id}: {lacking}: is not there, though the other label is. Add it, or take "
                "both out of a file without labels."
            )
        reference = None
        if given:
            evidence = [piece.model_dump(mode="json") for piece in question.evidence]
            reference = {"answer": question.answer, "evidence": evidence}
        return EgVqaItem(
            id=question.question_id,
            video=record.video_id,
            question=question.question,
            types=(question.type,),
            duration=record.duration,
            video_file=file,
            with_video=self.condition != "question_only",
            reference=reference,
            record=record,
            asked=question,
        )

    def question(self, item: Item) -> str:
        return self.prompt.template.replace("{question}", item.question)

    def parse(self, item: Item, text: str) -> Parsed:
        """Read by `vrjax.evidence.parse_response`; the faults of a readable response are among the values."""
        response = parse_response(text, item.duration)
        evidence = [
            {
                "timestamp": None if line.span is None else [line.span.start, line.span.end],
                "description": line.description,
            }
            for line in response.evidence
        ]
        values = {
            "answer": response.answer,
            "evidence": evidence,
            "reasoning": response.reasoning,
            "faults": {str(fault): count for fault, count in response.faults.items()},
        }
        return Parsed(values=values, failure=_failure(response))

    def read_submission(self, path: Path, items: Sequence[Item]) -> list[Prediction]:
        """The result file of the released evaluator; a question may have no row."""
        by_id = {item.id: item for item in items}
        predictions = []
        for row in load_results(path):
            item = by_id.get(row.question_id)
            if item is None:
                raise InputError(
                    f"{path}: {row.question_id!r} is no question of these records. Give the split that was answered."
                )
            asked = ((row.question or "").strip(), item.question.strip())
            if asked[0] and asked[0] != asked[1]:
                raise InputError(
                    f"{path}: {item.id} asks {asked[0]!r}, the records {asked[1]!r}. Give the files of one version."
                )
            text, error = row.text()
            judged = {} if row.answer_score is None else {"answer_score": row.answer_score}
            predictions.append(Prediction(id=item.id, text=text, error=error, judged=judged))
        return predictions

    def write_submission(self, path: Path, items: Sequence[Item], predictions: Sequence[Prediction]) -> None:
        """Each question flattened with `model_response_raw` and `parsed_response`, or `error`."""
        by_id = {prediction.id: prediction for prediction in predictions}
        rows = [_result_row(item, by_id[item.id]) for item in _own(items) if item.id in by_id]
        RunDirectory(Path(path).parent).write_json(Path(path).name, rows)

    async def score(self, items: Sequence[Item], predictions: Sequence[Prediction], tools: Tools) -> BenchmarkScore:
        """Official: percent, over all questions, an answer without a verdict counting 0. Strict: fractions.

        Needs `tools.similarity`. Raises InputError where there is none, an id is unknown, or an item has no labels.
        """
        if tools.similarity is None:
            raise InputError("EG-VQA compares descriptions, but no similarity is given (--similarity).")
        own = _own(items)
        unlabelled = [item.id for item in own if item.reference is None]
        if unlabelled:
            raise InputError(f"{unlabelled[0]}: has no answer and evidence to score against. Give a labelled split.")
        by_id = {prediction.id: prediction for prediction in predictions}
        unknown = sorted(by_id.keys() - {item.id for item in own})
        if unknown:
            raise InputError(f"{unknown[0]!r} is no question of these records. Give the split that was answered.")
        responses = {item.id: _response(item, by_id.get(item.id)) for item in own}
        verdicts, how = await self._verdicts(own, by_id, responses, tools)
        scored = score_questions([_scored_item(item, by_id, responses, verdicts) for item in own], tools.similarity)
        found = [
            self._item_score(item, question, verdicts[item.id]) for item, question in zip(own, scored, strict=True)
        ]
        return self._summary(found, scored, verdicts, tools.similarity.name, how)

    async def _verdicts(
        self,
        items: Sequence[EgVqaItem],
        predictions: Mapping[str, Prediction],
        responses: Mapping[str, Response | None],
        tools: Tools,
    ) -> tuple[dict[str, _Verdict], dict[str, Any]]:
        """A verdict on each answer by item id, and how they came about. No response is a wrong answer."""
        answered = {item.id: response for item in items if (response := responses[item.id]) is not None}
        verdicts = {item.id: _Verdict(0.0, 0.0) for item in items}
        if tools.judge is not None:
            # The metric is of the label alone, and the judge sees the whole answer and the segments' times (appendix
            # D.2); cutting long answers and punishing them belongs to the reward.
            judge = AnswerJudge(tools.judge, include_times=True, most_words=None, long_score=None)
            done = 0

            async def one(item: EgVqaItem, response: Response) -> None:
                nonlocal done
                asked, meta = item.asked, item.record.metadata
                found = await judge.judge(asked.question, asked.answer, response.answer, meta.title, meta.segments)
                verdicts[item.id] = _of_judgement(found)
                done += 1
                if tools.progress is not None:
                    tools.progress(done, len(answered))

            await asyncio.gather(*(one(item, answered[item.id]) for item in items if item.id in answered))
            return verdicts, {"by": "judge", **judge.settings}
        recorded = {name: predictions[name].judged.get("answer_score") for name in answered}
        if any(score is not None for score in recorded.values()):
            for name, score in recorded.items():
                verdicts[name] = _Verdict(None if score is None else float(score == 1), score)
            return verdicts, {"by": "answer_score of the result file"}
        rule = {"token_f1": token_f1, "exact": exact_match}[self.rule]
        for item in items:
            if (response := answered.get(item.id)) is not None:
                answer = item.asked.answer
                verdicts[item.id] = _Verdict(exact_match(answer, response.answer), rule(answer, response.answer))
        return verdicts, {"by": "rule", "rule": self.rule}

    def _item_score(self, item: EgVqaItem, question: QuestionScore, verdict: _Verdict) -> ItemScore:
        response = question.item.response
        values: dict[str, float | None] = {
            "format": float(response is not None and response.well_formed),
            "answer_strict": verdict.strict,
            "answer_relaxed": verdict.relaxed,
            **{key: question.value(key) for key in SUMMARY_KEYS},
        }
        values["gas"] = None if verdict.relaxed is None else verdict.relaxed * question.value("soft_eg_f1")
        failure = question.item.unanswered if response is None else _failure(response)
        if failure is None and verdict.relaxed is None:
            failure = "no verdict"
        notes = {"label": verdict.label} if verdict.label else {}
        notes |= {"judge": verdict.note} if verdict.note else {}
        return ItemScore(id=item.id, video=item.video, types=item.types, values=values, failure=failure, notes=notes)

    def _summary(
        self,
        found: Sequence[ItemScore],
        scored: Sequence[QuestionScore],
        verdicts: Mapping[str, _Verdict],
        similarity: str,
        how: dict[str, Any],
    ) -> BenchmarkScore:
        table = summarise(scored, similarity, how["by"])
        official = {key: 100 * table[key] for key in ("format", *SUMMARY_KEYS)}
        official["answer_strict"] = 100 * sum(verdict.strict or 0.0 for verdict in verdicts.values()) / len(found)
        official["answer_relaxed"] = 100 * sum(verdict.relaxed or 0.0 for verdict in verdicts.values()) / len(found)
        official["gas"] = 100 * sum(score.values["gas"] or 0.0 for score in found) / len(found)
        known = [key for key in STRICT_KEYS if any(score.values[key] is not None for score in found)]
        columns = {key: [score.values[key] for score in found] for key in known}
        intervals = clustered_intervals(columns, [score.video for score in found])
        kinds = sorted({kind for score in found for kind in score.types})
        failures = Counter(score.failure for score in found if score.failure is not None)
        failures.update({name: count for name, count in table["faults"].items() if count})
        return BenchmarkScore(
            benchmark=self.name,
            official={key: official[key] for key in STRICT_KEYS},
            strict={key: interval.mean for key, interval in intervals.items()},
            intervals=intervals,
            coverage=sum(score.failure is None for score in found) / len(found),
            by_type={kind: _means([score for score in found if kind in score.types]) for kind in kinds},
            failures=failures,
            items=found,
            quirks=(
                "Official values are percent, strict ones fractions.",
                "Official: an answer on which the judge gave no verdict counts 0. Strict: it has no value, and is "
                "counted as `no verdict`.",
                "Both: a question without a response counts 0 everywhere, also where it has no reference evidence.",
            ),
            details={
                "answers": how,
                "similarity": similarity,
                "condition": self.condition,
                "corpus": table["corpus"],
                "faults": table["faults"],
                "reference_faults": table["reference_faults"],
                "labels": dict(Counter(verdict.label for verdict in verdicts.values() if verdict.label)),
            },
        )


def _file_of(data: Path) -> Path:
    if not data.is_dir():
        return data
    if not (data / "test.json").is_file():
        raise InputError(f"{data}: holds no test.json. Give the file of records itself.")
    return data / "test.json"


def _own(items: Sequence[Item]) -> list[EgVqaItem]:
    own = [item for item in items if isinstance(item, EgVqaItem)]
    if len(own) != len(items):
        raise InputError("these items are not EG-VQA's. Read them with EgVqa.read.")
    return own


def _response(item: Item, prediction: Prediction | None) -> Response | None:
    if prediction is None or prediction.text is None:
        return None
    return parse_response(prediction.text, item.duration)


def _failure(response: Response) -> str | None:
    return "no answer" if not response.answer else None if response.evidence else "no evidence"


def _scored_item(
    item: EgVqaItem,
    predictions: Mapping[str, Prediction],
    responses: Mapping[str, Response | None],
    verdicts: Mapping[str, _Verdict],
) -> ScoredItem:
    prediction, response = predictions.get(item.id), responses[item.id]
    reason = None
    if response is None:
        reason = "missing" if prediction is None else error_name(prediction.error)
    answer = verdicts[item.id].relaxed if response is not None else None
    return ScoredItem(item.id, reference_evidence(item.asked.evidence), response, answer, reason)


def _of_judgement(found: Judgement) -> _Verdict:
    strict = None if found.score is None else float(found.score == 1)
    return _Verdict(strict, found.score, found.label, found.note)


def _means(scores: Sequence[ItemScore]) -> dict[str, float]:
    means = {"n": float(len(scores))}
    for key in STRICT_KEYS:
        values = [value for score in scores if (value := score.values[key]) is not None]
        if values:
            means[key] = sum(values) / len(values)
    return means


def _result_row(item: EgVqaItem, prediction: Prediction) -> dict[str, Any]:
    video = item.record.model_dump(mode="json", exclude_unset=True, exclude={"questions"})
    question = item.asked.model_dump(mode="json", exclude_unset=True)
    row = {"video_id": video.pop("video_id"), "question_id": question.pop("question_id"), **video, **question}
    if prediction.text is None:
        return {**row, "error": prediction.error or "no response"}
    response = parse_response(prediction.text, item.duration)
    parsed = {
        "evidence": "\n".join(line.text for line in response.evidence),
        "think": response.reasoning,
        "answer": response.answer,
    }
    return {**row, "model_response_raw": prediction.text, "parsed_response": parsed}
