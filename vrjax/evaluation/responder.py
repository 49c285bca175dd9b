"""A model that is asked about video files: frames, prompts, generation and parsing in one place.

    question about clip.mp4 → FramePlan → patches → prompt → engine → Response

A video that cannot be read is one unanswered question with a reason, never a lost batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vrjax.errors import InputError
from vrjax.evidence import Response, parse_response
from vrjax.generation.beam_search import Beam, BeamOptions
from vrjax.generation.engine import Engine
from vrjax.generation.prompts import Prompt, Vision, build_prompt
from vrjax.generation.recipe import PromptRecipe
from vrjax.generation.requests import EngineOptions, Request, Sample
from vrjax.generation.sampling import SamplingOptions
from vrjax.loading import LoadedModel
from vrjax.video import FramePlan, ReaderPool, load_patches, plan_frames, probe


@dataclass(frozen=True)
class Ask:
    """One question. video: a file, or None to ask without one. blank: show a video of that form in plain mid grey."""

    name: str
    question: str
    video: Path | None
    blank: bool = False


@dataclass(frozen=True)
class Reply:
    """What came back. `problem` says why there are no responses; `samples` and `responses` go together. beams: where
    they were searched for, best first.

    plan: the frames that were shown, its `notes` what was substituted for them; duration: of the video, in seconds.
    """

    ask: Ask
    samples: tuple[Sample, ...] = ()
    responses: tuple[Response, ...] = ()
    beams: tuple[Beam, ...] = ()
    plan: FramePlan | None = None
    duration: float | None = None
    problem: str | None = None


@dataclass(frozen=True)
class _Shown:
    """A video as it was read, or why it could not be."""

    plan: FramePlan | None = None
    duration: float | None = None
    vision: Sequence[Vision] = ()
    problem: str | None = None


class Responder:
    """Asks one model by one recipe. Videos are read in killable processes, `readers` at a time.

    engine: give one to share its compiled programs and feature cache with other work. progress: called with
    (questions done, questions in all).
    """

    def __init__(
        self,
        model: LoadedModel,
        recipe: PromptRecipe | None = None,
        *,
        engine: Engine | None = None,
        readers: int = 2,
        videos_at_once: int = 32,
        time_limit_s: float = 60.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.model = model
        self.recipe = recipe or PromptRecipe.read(model.directory) or PromptRecipe()
        self.engine = engine or Engine(model, EngineOptions())
        self._progress, self._videos_at_once = progress, videos_at_once
        self._readers, self._time_limit_s = readers, time_limit_s
        self._waiting: list[tuple[int, Prompt]] = []

    def ask(
        self,
        asks: Sequence[Ask],
        sampling: SamplingOptions,
        *,
        samples: int = 1,
        seed: int = 0,
        on_reply: Callable[[Reply], None] | None = None,
    ) -> list[Reply]:
        """Ask all, in any number; replies come in the order of the questions.

        Questions about one video go together, `videos_at_once` videos at a time; the next ones are read meanwhile.
        on_reply: called with each reply as soon as it is there.
        """

        def generate(prompts: Sequence[Prompt], finished: Callable[[int, Sequence[Sample]], None]) -> None:
            requests = [Request(prompt=prompt, samples=samples) for prompt in prompts]
            self.engine.generate(requests, sampling, seed=seed, on_finished=finished)

        def answered(reply: Reply, drawn: Sequence[Sample]) -> Reply:
            parsed = tuple(parse_response(sample.text, reply.duration) for sample in drawn)
            return replace(reply, samples=tuple(drawn), responses=parsed)

        return self._all(asks, sampling.max_tokens, generate, answered, on_reply)

    def search(
        self, asks: Sequence[Ask], options: BeamOptions, *, on_reply: Callable[[Reply], None] | None = None
    ) -> list[Reply]:
        """The same by beam search: replies with `beams`."""

        def generate(prompts: Sequence[Prompt], finished: Callable[[int, Sequence[Beam]], None]) -> None:
            self.engine.beam_search(prompts, options, on_finished=finished)

        def answered(reply: Reply, found: Sequence[Beam]) -> Reply:
            return replace(reply, beams=tuple(found))

        return self._all(asks, options.max_tokens, generate, answered, on_reply)

    def _all(
        self,
        asks: Sequence[Ask],
        max_tokens: int,
        generate: Callable[[Sequence[Prompt], Callable[[int, Any], None]], None],
        answered: Callable[[Reply, Any], Reply],
        on_reply: Callable[[Reply], None] | None,
    ) -> list[Reply]:
        """Read videos ahead, ask in groups; `answered` puts what was generated into a reply."""
        by_video: dict[Path | None, list[int]] = {}
        for number, ask in enumerate(asks):
            by_video.setdefault(ask.video, []).append(number)
        order = list(by_video)
        groups = [order[i : i + self._videos_at_once] for i in range(0, len(order), self._videos_at_once)]
        replies: dict[int, Reply] = {}
        progress = self._progress
        with (
            ReaderPool(self._readers, time_limit_s=self._time_limit_s) as pool,
            ThreadPoolExecutor(self._readers) as threads,
        ):

            def submit(group: Sequence[Path | None]) -> list[Future[_Shown]]:
                return [threads.submit(self._read, video, pool) for video in group]

            reading = submit(groups[0]) if groups else []
            for number, group in enumerate(groups):
                shown = [future.result() for future in reading]
                reading = submit(groups[number + 1]) if number + 1 < len(groups) else []
                for video, one in zip(group, shown, strict=True):
                    self._build(by_video[video], asks, one, max_tokens, replies, on_reply)
                waiting, self._waiting = self._waiting, []

                def finished(place: int, found: Any, waiting: Sequence[tuple[int, Prompt]] = waiting) -> None:
                    number = waiting[place][0]
                    replies[number] = answered(replies[number], found)
                    if on_reply is not None:
                        on_reply(replies[number])

                generate([prompt for _, prompt in waiting], finished)
                if progress is not None:
                    progress(len(replies), len(asks))
        return [replies[number] for number in range(len(asks))]

    def _build(
        self,
        numbers: Sequence[int],
        asks: Sequence[Ask],
        shown: _Shown,
        max_tokens: int,
        replies: dict[int, Reply],
        on_reply: Callable[[Reply], None] | None,
    ) -> None:
        limit = self.model.config.text.max_positions - max_tokens
        for number in numbers:
            ask = asks[number]
            reply = Reply(ask, plan=shown.plan, duration=shown.duration, problem=shown.problem)
            if shown.problem is None:
                try:
                    prompt = self._prompt(ask, _blank(shown.vision) if ask.blank else shown.vision, limit)
                    self._waiting.append((number, prompt))
                except InputError as error:
                    reply = replace(reply, problem=str(error))
            replies[number] = reply
            if reply.problem is not None and on_reply is not None:
                on_reply(reply)

    def _read(self, video: Path | None, pool: ReaderPool) -> _Shown:
        if video is None:
            return _Shown()
        try:
            info = probe(video, pool=pool)
            plan = plan_frames(info, self.recipe.frames)
            return _Shown(plan, info.duration, Vision.of_plan(plan, load_patches(plan, pool=pool)))
        except InputError as error:
            return _Shown(problem=str(error))

    def _prompt(self, ask: Ask, vision: Sequence[Vision], limit: int) -> Prompt:
        recipe = self.recipe
        return build_prompt(
            self.model.chat,
            self.model.config,
            ask.question,
            vision,
            system=recipe.system,
            instruction=recipe.instruction,
            name=ask.name,
            rule=recipe.position_rule,
            limit=limit,
        )


def _blank(vision: Sequence[Vision]) -> list[Vision]:
    """The same grids without content: every pixel at the middle of its range."""
    return [
        Vision(np.full_like(item.patches, 127), item.grid, item.seconds_per_grid, f"blank {item.grid}")
        for item in vision
    ]
