"""Options of an agent, for `vrjax agent` and `vrjax evaluate --agent`, and the agent that they make."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from vrjax.agents import VideoAgent
    from vrjax.llm import ChatClient
    from vrjax.video.transcript import Utterance

SPOKEN = (".srt", ".vtt", ".json", ".jsonl")
ModeName = Literal[
    "direct", "direct_transcript", "single_program", "single_program_best_subset", "agent_best_subset", "agent",
    "self_evaluation", "critic",
]  # fmt: skip


def make_client(spec: str, base_url: str | None, key_env: str, cache: Path | None, concurrency: int) -> ChatClient:
    """A client for `openai:MODEL` or `native:DIR`; cache: folder of replies."""
    from vrjax.llm import ChatClient, ReplyCache, parse_llm

    backend = parse_llm(spec, base_url, os.environ.get(key_env), timeout_s=300.0)
    kept = None if cache is None else ReplyCache(cache)
    if spec.startswith("native:"):  # its requests wait for whole batches
        return ChatClient(backend, concurrency=64, timeout_s=None, cache=kept)
    return ChatClient(backend, concurrency=concurrency, timeout_s=300.0, cache=kept)


def find_transcript(folder: Path, video: Path) -> Sequence[Utterance] | None:
    """What is said in a video, by the transcript in `folder` that is named as it is; None where there is none."""
    from vrjax.video.transcript import read_transcript

    places = [folder / f"{video.stem}{ending}" for ending in SPOKEN]
    path = next((path for path in places if path.is_file()), None)
    return None if path is None else read_transcript(path).utterances


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """What an agent is made of, beside its model."""

    tool_llm: str | None = None
    """Another model for the tools, at the same address."""
    critic_llm: str | None = None
    """Another model for the critic, at the same address."""
    task: Literal["qa", "localise"] = "qa"
    """localise: the answer is a span of time."""
    strategies: tuple[str, ...] = ()
    """Of the mode critic; by default three that fit the task."""
    subset: str | None = None
    """Tools of the modes …_best_subset."""
    critic_examples: Path | None = None
    """Examples for the critic, made by `vrjax agent build-critic-examples`."""
    tools: Path | None = None
    """A Python file with further tools. It is run with the rights of this process."""
    steps: int = 20
    """Programs before the agent has to finish."""
    reply_tokens: int = 2048
    """Longest reply of the agent, in tokens."""
    fps: float = 1.0
    """Frames a second that the tools look at."""
    window: int = 120
    """Frames that a model is shown at once."""

    def clients(
        self, llm: str, base_url: str | None, key_env: str, cache: Path | None, concurrency: int
    ) -> dict[str, ChatClient]:
        """A client for each model by its spec; `llm`'s is always there."""
        specs = dict.fromkeys([llm, *(spec for spec in (self.tool_llm, self.critic_llm) if spec is not None)])
        return {spec: make_client(spec, base_url, key_env, cache, concurrency) for spec in specs}

    def make(self, mode: ModeName, llm: str, clients: dict[str, ChatClient], seed: int) -> VideoAgent:
        """The agent. Raises InputError for files that cannot be used."""
        from vrjax.agents import TOOLS, AgentSettings, CriticSettings, Sampling, ToolSettings, VideoAgent, load_tools
        from vrjax.agents.critic import load_examples

        return VideoAgent(
            clients[llm],
            mode=mode,
            tools=(*TOOLS, *(load_tools(self.tools) if self.tools else ())),
            strategies=self.strategies or None,
            subset=self.subset,
            examples=load_examples(self.critic_examples) if self.critic_examples else (),
            tool_chat=clients[self.tool_llm or llm],
            critic_chat=clients[self.critic_llm or llm],
            agent=AgentSettings(steps=self.steps, max_tokens=self.reply_tokens),
            tool_settings=ToolSettings(window=self.window),
            critic=CriticSettings(seed=seed),
            sampling=Sampling(fps=self.fps),
        )
