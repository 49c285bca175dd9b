"""A model behind a chat endpoint as the subject of an evaluation: frames as pictures, calls side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vrjax.errors import InputError
from vrjax.evaluation.answer_log import Answer
from vrjax.evaluation.benchmark import Benchmark, Item
from vrjax.evaluation.subject import Asked
from vrjax.llm import ChatClient, ChatError, ChatRequest, Frames, Message
from vrjax.video import FrameOptions

# What a further question would meet as well.
FATAL = frozenset({"unauthorised", "budget", "replay_miss"})


class EndpointSubject:
    """Asks through a ChatClient, which retries, counts and limits.

    model: its name, without the server's address, which may change between two starts. name: for tables, default the
    client's. frames: default the benchmark's own. Questions about one video follow each other, so that its frames are
    read once.
    """

    def __init__(
        self,
        client: ChatClient,
        model: str,
        benchmark: Benchmark,
        *,
        name: str | None = None,
        frames: FrameOptions | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        max_tokens: int = 1024,
        seed: int = 0,
    ) -> None:
        self._client, self._model, self._name = client, model, name or client.name
        self._frames = frames or benchmark.frames or FrameOptions()
        # Greedy answers need no seed, and some servers refuse one.
        self._drawing: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens,
                                         "seed": seed if temperature else None}  # fmt: skip

    @property
    def name(self) -> str:
        return self._name

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"model": self._model, "frames": asdict(self._frames), "sampling": self._drawing}

    def wording(self, benchmark: Benchmark, item: Item) -> str:
        return benchmark.question(item)

    def answer(self, asked: Sequence[Asked], on_answer: Callable[[Answer], None]) -> None:
        asyncio.run(self._answer_all(asked, on_answer))

    async def _answer_all(self, asked: Sequence[Asked], on_answer: Callable[[Answer], None]) -> None:
        place = {video: number for number, video in enumerate(dict.fromkeys(one.video for one in asked))}
        waiting = iter(sorted(asked, key=lambda one: place[one.video]))

        async def work() -> None:
            for one in waiting:  # shared by all workers
                on_answer(await self._answer(one))

        workers = [asyncio.create_task(work()) for _ in range(self._client.concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await self._client.aclose()

    async def _answer(self, one: Asked) -> Answer:
        parts = [] if one.video is None else [Frames(one.video, self._frames)]
        request = ChatRequest(messages=(Message.user(*parts, one.text),), **self._drawing)
        try:
            reply = await self._client.complete(request)
        except ChatError as error:
            if error.kind in FATAL:
                raise
            kind = "video" if isinstance(error.__cause__, InputError) else error.kind
            return Answer(id=one.id, error=str(error), kind=kind)
        return Answer(id=one.id, text=reply.text, finished=not reply.cut)
