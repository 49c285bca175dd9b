"""The video context: eight questions to a video model (MovieCORE, section 3.1 and appendix II.1; in our own words)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_tools.moviecore.clips import Clip
from vrjax.llm.chat import Chat, ChatError, ChatRequest, Frames, Message
from vrjax.video import FrameOptions

CONTEXT_QUESTIONS = {
    "step_by_step": "Describe step by step, in the order in which it is shown, what happens in this video.",
    "subject": "What is the main subject or focus of this video?",
    "mood": "What is the overall mood or atmosphere, and what in the picture makes it so?",
    "events": "Which events or actions matter most, and where does the story turn?",
    "characters": "Who are the main characters or things, and how do they stand to each other?",
    "settings": "Where does it take place? Describe the settings and how they change.",
    "genre": "Which genre or category does this video belong to, and why?",
    "audience": "For whom was this video made, and how can one tell?",
}


@dataclass(frozen=True)
class ContextTask:
    """One of the eight questions about one clip."""

    clip: Clip
    video: Path
    name: str
    question: str
    frames: FrameOptions
    max_tokens: int

    @property
    def request(self) -> ChatRequest:
        message = Message.user(Frames(self.video, self.frames), self.question)
        return ChatRequest(messages=(message,), max_tokens=self.max_tokens)

    def key(self, model: str) -> str:
        """Names the question and all that its answer depends on but the video's bytes, which the reply's key has."""
        return f"{self.clip.name} {self.name} {hash_of(self.question, self.frames, self.max_tokens, model):016x}"


def hash_of(*parts: Any) -> int:
    """A number that depends on the parts' text alone."""
    import hashlib

    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big")


async def ask_context(chat: Chat, task: ContextTask) -> dict[str, Any]:
    """The row of one task: {clip, name, question, answer, model, cut}. Raises ChatError, also for an empty answer."""
    reply = await chat.complete(task.request)
    answer = reply.text.strip()
    if not answer:
        forget = getattr(chat, "forget", None)
        if forget is not None:
            await forget(task.request)
        raise ChatError(f"{chat.name}: the answer about {task.clip.file} is empty.", "bad_reply")
    return {
        "clip": task.clip.name, "name": task.name, "question": task.question, "answer": answer, "model": chat.name,
        "cut": reply.cut,
    }  # fmt: skip


def data_info(clip: Clip, context: Mapping[str, str]) -> dict[str, Any]:
    """What the roles know of a clip: the eight answers, its metadata, its short questions; no caption."""
    return {
        "video": clip.file,
        "video_context": dict(context),
        "metadata": dict(clip.metadata),
        "system1_questions": [{"question": question, "answer": answer} for question, answer in clip.system1],
    }
