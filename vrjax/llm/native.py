"""Our own engine as a Chat: requests that wait together are answered in one batch, by one worker thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from vrjax.errors import InputError
from vrjax.generation.chat_forms import Turn
from vrjax.generation.engine import Engine
from vrjax.generation.pictures import picture_vision
from vrjax.generation.prompts import TEXT_ONLY, Prompt, Vision, build_conversation
from vrjax.generation.recipe import PromptRecipe
from vrjax.generation.requests import EngineOptions, Request, Sample
from vrjax.generation.sampling import SamplingOptions
from vrjax.llm.chat import ChatError, ChatReply, ChatRequest, Image, Message, Part, Text, Usage
from vrjax.llm.request_key import canonical_request, request_key
from vrjax.llm.structured import worded
from vrjax.loading import LoadedModel, fingerprint, is_run, load, load_run
from vrjax.models.qwen2_5_vl import PositionRule
from vrjax.video import ReaderPool, load_patches, plan_frames


@dataclass(frozen=True)
class _Waiting:
    prompt: Prompt
    sampling: SamplingOptions
    samples: int
    seed: int
    keep: bool
    future: Future[list[Sample]]


class NativeChat:
    """A loaded model, or a model or run directory, as a Chat.

    Understands texts in several turns, and images and frames where the model sees them. Decoding is not bound to a JSON
    schema: a request's schema is described behind its last message, and `structured.ask` checks the reply and asks
    again. The same request gives the same reply, whatever waits beside it (`seed` None is 0).

    A conversation that opens with a system text, or has replies in it, is likely to go on: its prefix is kept, and the
    next turn prefills only what is new. prefix_bytes: room for that in host memory (0: none).

    engine: one to share compiled programs and features with; nothing else may use it at the same time. readers:
    processes that read videos, each for at most time_limit_s seconds a file. gather_s: how long a request waits for
    others to join its batch. `name` holds a digest of the weights, so that replies of another checkpoint in the same
    place are not taken for this one's. Close it, or use it as a context manager. In a ChatClient, give it a concurrency
    of the engine's batch_rows, and no time limit: requests wait for whole batches.
    """

    def __init__(
        self,
        model: LoadedModel | str | Path,
        *,
        engine: Engine | None = None,
        readers: int = 2,
        time_limit_s: float = 60.0,
        gather_s: float = 0.01,
        prefix_bytes: int = 1 << 30,
    ) -> None:
        if not isinstance(model, LoadedModel):
            model = load_run(model)[0] if is_run(model) else load(model)
        self.model, self.gather_s = model, gather_s
        self.engine = engine or Engine(model, EngineOptions(prefix_cache_bytes=prefix_bytes))
        recipe = PromptRecipe.read(model.directory) or PromptRecipe()
        self._rule: PositionRule = recipe.position_rule
        self._pool = ReaderPool(readers, time_limit_s=time_limit_s)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="native-chat")
        self._lock, self._waiting = threading.Lock(), list[_Waiting]()
        label = "model" if model.directory is None else model.directory.resolve().name
        self._name = f"native:{label}@{fingerprint(model)}"

    @property
    def name(self) -> str:
        return self._name

    @property
    def context(self) -> int:
        """Tokens that a prompt and its reply may have together."""
        return self.model.config.text.max_positions

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.model.chat.marks(text))

    async def complete(self, request: ChatRequest) -> ChatReply:
        """One reply. Raises InputError for an unreadable video, control tokens or a prompt beyond the context."""
        prompt = await asyncio.to_thread(self._prompt, request)
        sampling = SamplingOptions(max_tokens=request.max_tokens, temperature=request.temperature, top_p=request.top_p)
        future: Future[list[Sample]] = Future()
        keep = request.messages[0].role == "system" or any(one.role == "assistant" for one in request.messages)
        with self._lock:
            self._waiting.append(_Waiting(prompt, sampling, request.samples, request.seed or 0, keep, future))
        asyncio.get_running_loop().call_later(self.gather_s, self._wake)
        samples = await asyncio.wrap_future(future)
        return ChatReply(
            texts=tuple(sample.text for sample in samples),
            usage=Usage(len(prompt), sum(len(sample.tokens) for sample in samples)),
            model=self.name,
            finish_reasons=tuple("stop" if sample.finished else "length" for sample in samples),
        )

    def _wake(self) -> None:
        try:
            self._worker.submit(self._answer_waiting)
        except RuntimeError:  # closed meanwhile
            with self._lock:
                waiting, self._waiting = self._waiting, []
            for one in waiting:
                one.future.set_exception(ChatError(f"{self.name}: was closed before it answered.", "backend"))

    def close(self) -> None:
        """End the worker and the processes that read videos; a batch that runs is finished first."""
        self._worker.shutdown()
        self._pool.close()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def __enter__(self) -> NativeChat:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer_waiting(self) -> None:
        """Answer whatever waits, like with like. Runs in the worker; given up requests are left out."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        groups: dict[tuple[SamplingOptions, int], list[_Waiting]] = {}
        for one in waiting:
            if one.future.set_running_or_notify_cancel():
                groups.setdefault((one.sampling, one.seed), []).append(one)
        for (sampling, seed), group in groups.items():
            requests = [Request(prompt=one.prompt, samples=one.samples, keep=one.keep) for one in group]
            try:
                drawn = self.engine.generate(requests, sampling, seed=seed)
            except Exception as error:
                for one in group:
                    one.future.set_exception(_engine_error(self.name, error))
                continue
            for one, samples in zip(group, drawn, strict=True):
                one.future.set_result(samples)

    def _prompt(self, request: ChatRequest) -> Prompt:
        limit = self.model.config.text.max_positions - request.max_tokens
        turns = [Turn(message.role, tuple(self._pieces(message))) for message in worded(request)]
        # Named by its content: draws depend on what is asked alone.
        name = request_key(canonical_request(request, ""))
        config = self.model.config
        return build_conversation(self.model.chat, config, turns, name=name, rule=self._rule, limit=limit)

    def _pieces(self, message: Message) -> Sequence[str | Vision]:
        return [piece for part in message.parts for piece in self._piece(part)]

    def _piece(self, part: Part) -> Sequence[str | Vision]:
        if isinstance(part, Text):
            return [part.text]
        if self.model.config.vision is None:
            raise InputError(f"{self.name}: {TEXT_ONLY}")
        if isinstance(part, Image):
            return [picture_vision(part.data, self.model.config.vision)]
        sizes = self.model.config.vision
        options = part.options
        wanted = (sizes.patch_size, sizes.temporal_patch_size, sizes.merge_size)
        if (options.patch_size, options.temporal_patch_size, options.merge_size) != wanted:
            raise InputError(f"{part.video}: the model's patch, temporal patch and merge sizes are {wanted}. Use them.")
        plan = plan_frames(part.video, options, pool=self._pool)
        return Vision.of_plan(plan, load_patches(plan, pool=self._pool))


def _engine_error(name: str, error: Exception) -> Exception:
    if isinstance(error, InputError):
        return error
    return ChatError(f"{name}: the engine failed ({type(error).__name__}: {error}).", "backend")
