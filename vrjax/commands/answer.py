"""`vrjax answer`: one question about one video."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vrjax.commands.devices import Devices
from vrjax.errors import InputError
from vrjax.video import FrameOptions

if TYPE_CHECKING:
    from vrjax.evaluation.responder import Reply


@dataclass(frozen=True)
class Answer:
    """Answer a question about a video, with the moments that support the answer.

    Examples::

        vrjax answer clip.mp4 "What does the red circle do?" --model runs/demo/model
        vrjax answer clip.mp4 "What happens first?" --model Qwen/Qwen2.5-VL-3B-Instruct --samples 4 --temperature 1
        vrjax answer film.mkv "Who enters?" --model DIR --frames.start 60 --frames.end 90 --json
        vrjax answer film.mkv "Who enters?" --model Qwen/Qwen2.5-VL-72B-Instruct --devices.tensor 8
    """

    video: tyro.conf.Positional[Path]
    """A video file."""
    question: tyro.conf.Positional[str]
    """What to ask."""
    model: str
    """Directory of a model (config.json, safetensors, tokenizer), Hugging Face id, or run (its best checkpoint)."""
    samples: int = 1
    """How many responses to draw; more than one needs a temperature above 0."""
    temperature: float = 0.0
    """0 always takes the likeliest token."""
    top_p: float = 1.0
    """Draw from the likeliest tokens that hold this much probability."""
    max_tokens: int = 1024
    """Longest response, in tokens."""
    seed: int = 0
    """Of the draws."""
    instruction: str | None = None
    """Text behind the question. Default: what the checkpoint was trained with, else the evidence instruction."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON instead of text."""
    frames: FrameOptions = field(default_factory=FrameOptions)
    """Which frames, and at what size. A checkpoint trained by vrjax brings its own; flags override them."""
    devices: Devices = field(default_factory=Devices)
    """Devices that hold the model; by default the first."""

    def run(self) -> int:
        """Answer, print, and return the exit code."""
        if self.samples > 1 and self.temperature == 0:
            raise InputError(f"{self.samples} samples at temperature 0 would all be the same. Add --temperature 1.")
        from vrjax.evaluation.responder import Ask, Responder
        from vrjax.generation.recipe import PromptRecipe
        from vrjax.generation.sampling import SamplingOptions
        from vrjax.video import probe

        probe(self.video)  # a bad file is named before the model is loaded
        model = self.devices.load(self.model)
        recipe = PromptRecipe.read(model.directory) or PromptRecipe()
        if self.frames != FrameOptions():
            recipe = replace(recipe, frames=self.frames)
        if self.instruction is not None:
            recipe = replace(recipe, instruction=self.instruction)
        sampling = SamplingOptions(max_tokens=self.max_tokens, temperature=self.temperature, top_p=self.top_p)
        ask = Ask(str(self.video), self.question, self.video)
        reply = Responder(model, recipe).ask([ask], sampling, samples=self.samples, seed=self.seed)[0]
        if reply.problem is not None:
            raise InputError(reply.problem)
        result = as_json(reply)
        if self.json:
            print(json.dumps(result, indent=1, ensure_ascii=False))
        else:
            _show(result)
        return 0


def as_json(reply: Reply) -> dict[str, Any]:
    """A reply for `--json`: what was shown, and each response with its evidence (times in seconds, None unreadable)."""
    plan = reply.plan
    responses = []
    for sample, response in zip(reply.samples, reply.responses, strict=True):
        evidence = [
            {
                "start": None if line.span is None else line.span.start,
                "end": None if line.span is None else line.span.end,
                "description": line.description,
            }
            for line in response.evidence
        ]
        responses.append(
            {
                "answer": response.answer,
                "evidence": evidence,
                "reasoning": response.reasoning,
                "well_formed": response.well_formed,
                "faults": {str(fault): count for fault, count in response.faults.items()},
                "text": sample.text,
                "tokens": len(sample.tokens),
                "log_prob": float(sample.raw_log_probs.sum()),
                "finished": sample.finished,
            }
        )
    return {
        "video": str(reply.ask.video),
        "question": reply.ask.question,
        "frames": [] if plan is None else [round(time, 3) for time in plan.timestamps],
        "notes": [] if plan is None else list(plan.notes),
        "responses": responses,
    }


def _show(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape

    from vrjax.evidence import format_time

    console = Console()
    for note in result["notes"]:
        console.print(f"[yellow]note:[/yellow] {escape(note)}")
    for number, response in enumerate(result["responses"], 1):
        if len(result["responses"]) > 1:
            console.rule(f"sample {number}")
        console.print(f"[bold]Answer[/bold]     {escape(response['answer'] or '(none)')}")
        for line in response["evidence"]:
            span = "no usable time"
            if line["start"] is not None:
                span = f"{format_time(line['start'])}-{format_time(line['end'])}"
            console.print(f"[bold]Evidence[/bold]   {span}  {escape(line['description'])}")
        if response["reasoning"]:
            console.print(f"[bold]Reasoning[/bold]  {escape(response['reasoning'])}")
        if response["faults"]:
            console.print(
                f"[yellow]malformed:[/yellow] {', '.join(f'{k} x{v}' for k, v in response['faults'].items())}"
            )
        if not response["finished"]:
            console.print("[yellow]note:[/yellow] the response reached max_tokens before it ended")
