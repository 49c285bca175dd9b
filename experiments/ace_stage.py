"""The demo's ACE stage: beams of the small video model, chosen between by SmolLM2-135M.

SmolLM2 knows nothing of the clips and little of the small model's vocabulary: the stage shows that the parts fit
together, not that the choice is a good one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.shapes_sft import FRAMES
from vrjax.evaluation import report
from vrjax.evaluation.responder import Ask, Responder
from vrjax.evidence import exact_match, parse_response
from vrjax.generation import BeamOptions, Engine
from vrjax.generation.recipe import PromptRecipe
from vrjax.loading import LoadedModel, load, load_gguf, save
from vrjax.records import VideoRecord
from vrjax.reranking import AceResult, Candidate, Reranker, Scorer

BEAMS, TOKENS, SHOWN = 5, 96, 6


@dataclass(frozen=True)
class AceStage:
    """summary: figures for summary.json; rows: (question, reference, result)."""

    summary: dict[str, Any]
    rows: Sequence[tuple[str, str, AceResult]]

    def table(self) -> report.Table:
        """Candidates of the first questions with both scores, the winner marked."""
        lines = []
        for question, reference, result in self.rows[:SHOWN]:
            for place, (one, score) in enumerate(zip(result.candidates, result.scores, strict=True)):
                asked = f"{question} (reference: {reference})" if place == 0 else ""
                ace = "" if score is None else f"{score:.2f}"
                mark = "chosen" if place == result.winner else ""
                lines.append([asked, one.text, f"{one.beam_score:.3f}", ace, mark])
        return report.Table(
            "ACE: SmolLM2-135M chooses between five beams",
            ("question", "candidate", "beam score", "ACE score", ""),
            lines,
            (
                f"Answers right over {self.summary['questions']} questions: {self.summary['top_beam_answer']:.3f} with "
                f"the top beam, {self.summary['answer']:.3f} with the chosen one. The scorer has not seen the clips.",
            ),
        )


def choose_between_beams(
    model: LoadedModel, data: Path, records: Sequence[VideoRecord], gguf: Path, scorer: Path
) -> AceStage:
    """Search, score and choose for every question; the scorer is converted to the folder `scorer` once."""
    if not scorer.exists():
        save(load_gguf(gguf), scorer)
    questions = [(question, data / record.video_path) for record in records for question in record.questions]
    asks = [Ask(question.question_id, question.question, video) for question, video in questions]
    responder = Responder(model, PromptRecipe(FRAMES, instruction=""))
    replies = responder.search(asks, BeamOptions(beams=BEAMS, max_tokens=TOKENS))
    beams = [[Candidate(beam.text, beam.score) for beam in reply.beams] for reply in replies]
    asked = [(question.question, candidates) for (question, _), candidates in zip(questions, beams, strict=True)]
    results = Reranker(Scorer(Engine(load(scorer)))).rerank(asked)

    def right(text: str, reference: str) -> float:
        return float(exact_match(parse_response(text).answer, reference))

    answers = [question.answer for question, _ in questions]
    chosen = [right(result.text, answer) for result, answer in zip(results, answers, strict=True)]
    first = [right(result.candidates[0].text, answer) for result, answer in zip(results, answers, strict=True)]
    summary = {
        "questions": len(questions),
        "beams": BEAMS,
        "answer": sum(chosen) / len(chosen),
        "top_beam_answer": sum(first) / len(first),
        "not_the_top_beam": sum(result.changed for result in results) / len(results),
        "undecided": sum(not result.decided for result in results),
        "scorer": "SmolLM2-135M-Instruct",
    }
    rows = [
        (question.question, answer, result)
        for (question, _), answer, result in zip(questions, answers, results, strict=True)
    ]
    return AceStage(summary, rows)
