"""`vrjax ace`: candidates of a video model, and the one that a small language model likes best."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from vrjax.commands.devices import Devices
from vrjax.errors import InputError
from vrjax.video import FrameOptions

if TYPE_CHECKING:
    from vrjax.reranking import AceResult, Candidate


@dataclass(frozen=True)
class Ace:
    """Let a small language model choose between candidate answers about a video (ACE, MovieCORE).

    Candidates come from the video model's beam search, from its samples, from an OpenAI-compatible endpoint, or as
    texts.

    Examples::

        vrjax ace film.mp4 "Why does she leave?" --model Qwen/Qwen2.5-VL-7B-Instruct --scorer meta-llama/Llama-3.2-1B
        vrjax ace clip.mp4 "What is it about?" --model DIR --scorer smollm2 --beam-width 7 --read-out log_likelihood
        vrjax ace clip.mp4 "Who is late?" --llm openai:qwen --base-url http://localhost:8000/v1 --scorer smollm2
        vrjax ace clip.mp4 "Who is late?" --candidate "The captain." "Nobody." --scorer smollm2 --json
    """

    video: tyro.conf.Positional[Path]
    """A video file."""
    question: tyro.conf.Positional[str]
    """What to ask."""
    scorer: str
    """Text model that scores candidates: a directory or Hugging Face id."""
    model: str | None = None
    """Video model that writes candidates: a directory or Hugging Face id."""
    llm: str | None = None
    """Model behind an OpenAI-compatible endpoint that writes them instead, as openai:MODEL."""
    base_url: str | None = None
    """Address of the endpoint; by default OpenAI's."""
    api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the endpoint's key."""
    candidate: tuple[str, ...] = ()
    """Candidates as texts, best first; no video model is asked."""
    beam_width: int = 5
    """Number of candidates."""
    source: Literal["beams", "samples"] = "beams"
    """Whether --model searches with beams or draws samples (at --temperature)."""
    length_penalty: float = 1.0
    """Beams' scores are divided by length to this power."""
    max_tokens: int = 256
    """Longest candidate, in tokens."""
    temperature: float = 1.0
    """Of samples, from the model or the endpoint."""
    seed: int = 0
    """Of samples."""
    read_out: Literal["expected_digit", "generated_number", "log_likelihood"] = "expected_digit"
    """How the scorer's opinion is read."""
    too_long: Literal["error", "cut"] = "error"
    """What to do with a candidate that exceeds the scorer's context."""
    instruction: str | None = None
    """Text behind the question. Default: what the checkpoint was trained with, else none."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON instead of text."""
    frames: FrameOptions = field(default_factory=FrameOptions)
    """Which frames, and at what size. A checkpoint trained by vrjax brings its own; flags override them."""
    devices: Devices = field(default_factory=Devices)
    """Devices that hold --model; by default the first, where the scorer is."""

    def run(self) -> int:
        """Choose, print, and return the exit code."""
        self._check()
        from vrjax.generation import Engine
        from vrjax.loading import load
        from vrjax.reranking import Reranker, Scorer, ScorerOptions
        from vrjax.video import probe

        probe(self.video)  # a bad file is named before a model is loaded
        candidates, notes = self._candidates()
        options = ScorerOptions(read_out=self.read_out, too_long=self.too_long)
        result = Reranker(Scorer(Engine(load(self.scorer)), options)).rerank([(self.question, candidates)])[0]
        content = as_json(self, result, notes)
        if self.json:
            print(json.dumps(content, indent=1, ensure_ascii=False))
        else:
            _show(content)
        return 0 if result.decided else 1

    def _check(self) -> None:
        given = [
            name
            for name, value in (("--model", self.model), ("--llm", self.llm), ("--candidate", self.candidate))
            if value
        ]
        if len(given) != 1:
            raise InputError(
                f"candidates come from one place, but {' and '.join(given) or 'none'} is given. "
                "Give one of --model, --llm and --candidate."
            )
        if self.beam_width < 1:
            raise InputError(f"--beam-width {self.beam_width}: ask for at least one candidate.")
        if self.source == "samples" and self.temperature == 0 and self.beam_width > 1:
            raise InputError("samples at temperature 0 would all be the same. Raise --temperature, or use beams.")

    def _candidates(self) -> tuple[list[Candidate], list[str]]:
        """Candidates, best first, and what was substituted in the video."""
        from vrjax.reranking import Candidate

        if self.candidate:
            return [Candidate(text) for text in self.candidate], []
        return self._of_endpoint() if self.llm is not None else self._of_model()

    def _of_model(self) -> tuple[list[Candidate], list[str]]:
        from vrjax.evaluation.responder import Ask, Responder
        from vrjax.generation import BeamOptions, SamplingOptions
        from vrjax.generation.recipe import PromptRecipe
        from vrjax.reranking import Candidate

        model = self.devices.load(self.model or "")
        recipe = PromptRecipe.read(model.directory) or PromptRecipe(instruction="")
        if self.frames != FrameOptions():
            recipe = replace(recipe, frames=self.frames)
        if self.instruction is not None:
            recipe = replace(recipe, instruction=self.instruction)
        responder, ask = Responder(model, recipe), Ask(str(self.video), self.question, self.video)
        if self.source == "beams":
            options = BeamOptions(beams=self.beam_width, max_tokens=self.max_tokens, length_penalty=self.length_penalty)
            reply = responder.search([ask], options)[0]
            found = [Candidate(beam.text, beam.score) for beam in reply.beams]
        else:
            sampling = SamplingOptions(max_tokens=self.max_tokens, temperature=self.temperature)
            reply = responder.ask([ask], sampling, samples=self.beam_width, seed=self.seed)[0]
            means = [(float(sample.raw_log_probs.mean()), sample.text) for sample in reply.samples]
            found = [Candidate(text, score) for score, text in sorted(means, key=lambda pair: -pair[0])]
        if reply.problem is not None:
            raise InputError(reply.problem)
        return found, [] if reply.plan is None else list(reply.plan.notes)

    def _of_endpoint(self) -> tuple[list[Candidate], list[str]]:
        import asyncio

        from vrjax.llm import ChatClient, ChatRequest, Frames, Message, parse_llm
        from vrjax.reranking import Candidate

        async def ask() -> Sequence[str]:
            chat = ChatClient(parse_llm(self.llm or "", self.base_url, os.environ.get(self.api_key_env)))
            try:
                message = Message.user(Frames(self.video, self.frames), self.question + (self.instruction or ""))
                reply = await chat.complete(
                    ChatRequest(
                        messages=(message,), samples=self.beam_width, temperature=self.temperature,
                        max_tokens=self.max_tokens, seed=self.seed,
                    )
                )  # fmt: skip
            finally:
                await chat.aclose()
            return reply.texts

        return [Candidate(text) for text in asyncio.run(ask())], []


def as_json(options: Ace, result: AceResult, notes: Sequence[str]) -> dict[str, Any]:
    """For `--json`: every candidate with its scores, and the winner's index and text."""
    rows = [
        {"text": one.text, "beam_score": one.beam_score, "ace_score": score}
        for one, score in zip(result.candidates, result.scores, strict=True)
    ]
    return {
        "video": str(options.video),
        "question": options.question,
        "read_out": options.read_out,
        "candidates": rows,
        "winner": result.winner,
        "answer": result.text,
        "decided": result.decided,
        "notes": [*notes, *result.notes],
    }


def _show(content: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    console = Console()
    table = Table("", "beam score", f"ACE ({content['read_out']})", "candidate")
    for place, row in enumerate(content["candidates"]):
        mark = "→" if place == content["winner"] else ""
        table.add_row(mark, number(row["beam_score"]), number(row["ace_score"]), escape(row["text"]))
    console.print(table)
    for note in content["notes"]:
        console.print(f"[yellow]note:[/yellow] {escape(note)}")
    if not content["decided"]:
        console.print("[yellow]note:[/yellow] the scorer gave no score; the first candidate stands")
    console.print(f"[bold]Answer[/bold]  {escape(content['answer'])}")
