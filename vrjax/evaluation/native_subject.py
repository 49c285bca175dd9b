"""One of our own models as the subject of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from vrjax.evaluation.answer_log import Answer
from vrjax.evaluation.benchmark import Benchmark, Item
from vrjax.evaluation.responder import Ask, Reply, Responder
from vrjax.evaluation.subject import Asked, Wording, plain_wording
from vrjax.generation.recipe import PromptRecipe
from vrjax.generation.sampling import SamplingOptions
from vrjax.loading import LoadedModel, fingerprint
from vrjax.video import FrameOptions


class NativeSubject:
    """Batches by bucket through `Responder`.

    frames: which the model is shown; default: what the checkpoint was trained with, else the benchmark's own. wording:
    see `subject.Wording`. sampling: default greedy, up to 1,024 tokens. videos_at_once: of `Responder`.
    """

    def __init__(
        self,
        model: LoadedModel,
        name: str,
        benchmark: Benchmark,
        *,
        frames: FrameOptions | None = None,
        wording: Wording = "benchmark",
        sampling: SamplingOptions | None = None,
        seed: int = 0,
        videos_at_once: int = 32,
    ) -> None:
        self._name, self._wording = name, wording
        own = PromptRecipe.read(model.directory)
        recipe = own or PromptRecipe()
        if frames is None and own is None:
            frames = _fitted(benchmark.frames or FrameOptions(), model)
        self._instruction = recipe.instruction
        self._recipe = replace(recipe, frames=frames or recipe.frames, instruction="")
        self._sampling = sampling or SamplingOptions(max_tokens=1024, temperature=0)
        self._seed = seed
        self._weights = fingerprint(model)
        self._responder = Responder(model, self._recipe, videos_at_once=videos_at_once)
        self.trained_otherwise = own is not None and wording == "benchmark"

    @property
    def name(self) -> str:
        return self._name

    @property
    def settings(self) -> Mapping[str, Any]:
        recipe = self._recipe
        return {
            "weights": self._weights,
            "wording": self._wording if self._wording == "benchmark" else {"checkpoint": self._instruction},
            "frames": asdict(recipe.frames),
            "system": recipe.system,
            "position_rule": recipe.position_rule,
            "sampling": asdict(self._sampling),
            "seed": self._seed,
        }

    def renew(self, model: LoadedModel, name: str) -> None:
        """Go on with other weights of the same architecture; what was compiled stays."""
        self._responder.engine.set_params(model.params)
        self._name, self._weights = name, fingerprint(model)

    def wording(self, benchmark: Benchmark, item: Item) -> str:
        if self._wording == "benchmark":
            return benchmark.question(item)
        return plain_wording(item) + self._instruction

    def answer(self, asked: Sequence[Asked], on_answer: Callable[[Answer], None]) -> None:
        asks = [Ask(one.id, one.text, one.video) for one in asked]
        self._responder.ask(asks, self._sampling, seed=self._seed, on_reply=lambda reply: on_answer(_answer(reply)))


def _answer(reply: Reply) -> Answer:
    notes = () if reply.plan is None else reply.plan.notes
    if reply.problem is not None:
        kind = "video" if reply.plan is None and reply.ask.video is not None else "prompt"
        return Answer(id=reply.ask.name, error=reply.problem, kind=kind, notes=notes)
    (sample,) = reply.samples
    return Answer(id=reply.ask.name, text=sample.text, finished=sample.finished, notes=notes)


def _fitted(frames: FrameOptions, model: LoadedModel) -> FrameOptions:
    """The same frames in the patches of this model."""
    sizes = model.config.vision
    return replace(
        frames,
        patch_size=sizes.patch_size,
        temporal_patch_size=sizes.temporal_patch_size,
        merge_size=sizes.merge_size,
    )
