"""One GRPO step of ours, built from what the trainer runs: sampler, packing and update, for one prompt.

A step is rollout (vision, prefill, decode; nothing kept from the step before, weights handed over anew) and update
(loss, gradients, clipping, AdamW). Rewards are made up; they cost nothing on either side.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from vrjax.generation.prompts import Prompt
from vrjax.generation.requests import Request
from vrjax.ledger import Ledger
from vrjax.loading import LoadedModel, abstract_model
from vrjax.records import Question, VideoRecord
from vrjax.rewards import Reward
from vrjax.sharding import Sharder, make_mesh, update_rules
from vrjax.training.advantages import group_advantages
from vrjax.training.buckets import RowSize
from vrjax.training.config import FreshModel
from vrjax.training.forward import ForwardOptions
from vrjax.training.placement import place_state
from vrjax.training.policy.batch import pack_batch
from vrjax.training.policy.compiled import PolicyPrograms
from vrjax.training.policy.config import GrpoConfig, RolloutConfig
from vrjax.training.policy.figures import Work
from vrjax.training.policy.groups import Group, reward_matrix
from vrjax.training.policy.preparation import PreparedPolicy
from vrjax.training.policy.programs import Policy
from vrjax.training.policy.prompts import PromptItem
from vrjax.training.policy.sampler import Sampler
from vrjax.training.policy_loss import PolicyLossConfig
from vrjax.training.state import make_optimizer

# Sampler and update run one model: their log-probs (float32) may differ by rounding only.
AUDIT = 1e-3


@dataclass(frozen=True)
class StepOptions:
    """group: G; tokens: C, of every response. shared: one row a prompt, else one row a response, in the rollout too.

    remat: recompute layers in the backward pass; micro_batches: parts of the update.
    """

    group: int = 8
    tokens: int = 64
    shared: bool = True
    remat: bool = False
    micro_batches: int = 1

    @property
    def config(self) -> GrpoConfig:
        rollout = RolloutConfig(
            prompts=1, group=self.group, max_tokens=self.tokens, min_tokens=self.tokens, temperature=1.0, top_p=1.0
        )
        return GrpoConfig(
            run_dir=Path("unused"),
            model=cast(FreshModel, None),
            data=(),
            reward=_no_reward,
            rollout=rollout,
            loss=PolicyLossConfig(kl_weight=0.0),
            split_groups=1 if self.shared else self.group,
            remat=self.remat,
            micro_batches=self.micro_batches,
        )


def _no_reward(*_: Any) -> Reward:
    raise AssertionError("rewards are made up here")


@dataclass
class PolicyStep:
    """`run` makes one step and notes its seconds as (rollout, update) in `taken`."""

    model: LoadedModel
    prompt: Prompt
    options: StepOptions = field(default_factory=StepOptions)
    ledger: Ledger = field(default_factory=Ledger)
    taken: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        config, model = self.options.config, self.model
        mesh = make_mesh(1, 1, 1, 1, jax.devices()[:1])
        abstract = abstract_model(model.config)[1]
        forward = ForwardOptions(
            dtype=jnp.float32, remat=config.remat, unroll=True, shard=Sharder(mesh, update_rules())
        )
        policy = Policy(model.graph, forward, config.rollout.temperature)
        optimizer = make_optimizer(config.optimizer, 1000)
        params = jax.tree.map(lambda array: array + 0, model.params)  # given up below
        self.state, shardings = place_state(params, optimizer, config.freeze_vision, mesh, model.config)
        unread = cast(Any, None)  # data and schedule: there is one prompt, and it is here
        self.prepared = PreparedPolicy(
            mesh=mesh, model=replace(model, params=unread), abstract=abstract, corpus=unread, buckets=(),
            schedule=unread, steps=1000, reward=_no_reward, policy=policy, optimizer=optimizer,
            rate=config.optimizer.rate(1000), state=self.state, shardings=shardings, item_of=unread, plan_of=unread,
        )  # fmt: skip
        self.config = config
        self.programs = PolicyPrograms(config, self.prepared, self.ledger)
        self.sampler = Sampler(self.prepared.model, abstract, policy, mesh, config.rollout, self.ledger)
        frames, *frame = np.max([item.grid for item in self.prompt.vision] or [(1, 2, 2)], axis=0)
        length, tokens = len(self.prompt), self.options.tokens
        self.bucket = RowSize(length + tokens, tokens, int(frames), int(np.prod(frame)), 1)
        question = Question(question_id="q", question="?")
        record = VideoRecord(video_id="v", video_path="v.mp4", duration=1.0, questions=(question,))
        self.item = PromptItem(record, question, replace(self.prompt, trunk=len(self.prompt)))

    def run(self) -> None:
        step, start = len(self.taken), time.perf_counter()
        self.sampler.load(self.state)
        self.sampler.engine.forget_features()
        group = self._sample(step)
        middle = time.perf_counter()

        group = group.scored([Reward(float(number)) for number in range(self.options.group)])
        advantages = group_advantages(reward_matrix([group], self.options.group))
        batch = pack_batch(self.config, self.prepared, [group], advantages, self.bucket, self.sampler, self.state)
        self.sampler.unload()
        self.state, _, seen = self.programs.update(self.state, batch, batch.targets)
        jax.block_until_ready(self.state)
        self.taken.append((middle - start, time.perf_counter() - middle))

        apart = np.abs((np.asarray(seen) - batch.recorded) * batch.present).max()
        assert apart < AUDIT, f"log-probs of sampler and update differ by {apart}"

    def _sample(self, step: int) -> Group:
        if self.options.shared:
            group = self.sampler.sample([self.item], step=step, seed=0, sampled_at=step)[0]
        else:
            requests = [Request(prompt=self.prompt, samples=1, address=number) for number in range(self.options.group)]
            drawn = self.sampler.engine.generate(requests, self.config.rollout.sampling(), step=step)
            group = Group(self.item, tuple(samples[0] for samples in drawn), step)
        assert group.lengths == [self.options.tokens] * self.options.group, group.lengths
        return group

    @property
    def compile_s(self) -> float:
        return sum(entry.seconds for entry in self.ledger.entries)

    def bound(self, flops_rate: float, read_rate: float) -> tuple[float, float]:
        """Seconds of (rollout, update) that the machine itself allows a shared prefix.

        Rollout: products of vision and prefill, then each decode step the slower of its products and of reading
        weights and caches once. Update: three forward passes' products (backward is two), and AdamW reading
        parameters, gradients and two moments and writing three of them.
        """
        text, work, options = self.model.config.text, Work(self.model.config), self.options
        length, responses = len(self.prompt), [options.tokens] * options.group
        patches = sum(int(np.prod(item.grid)) for item in self.prompt.vision)
        frame = max((item.grid[1] * item.grid[2] for item in self.prompt.vision), default=0)
        weights = sum(leaf.nbytes for leaf in jax.tree.leaves(self.model.params["text"]))
        read = weights - 4 * text.vocabulary * text.width  # all but the embedding, of which single rows are read
        cache = 8 * text.layers * text.kv_heads * text.head_size * (length + options.group * options.tokens / 2)
        steps = options.tokens - 1
        decode = max(work.decode([(length, responses)]) / flops_rate, steps * (read + cache) / read_rate)
        rollout = (work.vision(patches, frame) + work.prefill([length])) / flops_rate + decode
        return rollout, 3 * work.forward([(length, responses)]) / flops_rate + 7 * weights / read_rate
