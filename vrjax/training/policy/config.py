"""The configuration of a GRPO run. The defaults are those of EG-Reasoner (METHODS, "Rewards and GRPO")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from vrjax.errors import InputError
from vrjax.generation.sampling import SamplingOptions
from vrjax.models.lora import LoraConfig
from vrjax.training.config import (
    FREE_FIELDS,
    CheckpointConfig,
    DatasetConfig,
    Evaluate,
    InputConfig,
    MeshConfig,
    ModelSource,
)
from vrjax.training.policy_loss import PolicyLossConfig
from vrjax.training.state import OptimizerConfig
from vrjax.video import FrameOptions

# (prompt, response, record) -> Reward, sync or async; see vrjax.rewards
RewardFunction = Callable[..., Any]


@dataclass(frozen=True)
class RolloutConfig:
    """prompts: of a step, over all processes; group: responses to each. max_tokens: of a response.

    temperature, top_p, top_k: of sampling; only the temperature enters the log-probs of the ratio.
    resample_rounds: how often a step may draw other prompts in place of groups that teach nothing (all rewards equal);
    0 keeps such groups, with advantage 0. mask_overlong: leave responses that hit `max_tokens` out of the loss.
    batch_rows: responses decoded together on one process.
    """

    prompts: int = 16
    group: int = 8
    max_tokens: int = 1024
    temperature: float = 1.0
    top_p: float = 0.99
    top_k: int = 0
    min_tokens: int = 0
    resample_rounds: int = 0
    mask_overlong: bool = False
    batch_rows: int = 128

    def sampling(self) -> SamplingOptions:
        return SamplingOptions(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_tokens=self.min_tokens,
        )


@dataclass(frozen=True)
class ScoringConfig:
    """How rewards are called: `concurrency` at once, each within `timeout_s` seconds and `attempts` tries.

    max_unscored_share: of the latest responses, past which the run stops.
    """

    concurrency: int = 16
    timeout_s: float = 300.0
    attempts: int = 3
    backoff_s: float = 1.0
    max_unscored_share: float = 0.5


@dataclass(frozen=True)
class AuditConfig:
    """Largest and mean difference allowed between log-probs recorded while decoding and those of the update's pass.

    None: the calibrated bound for the compute type (see policy.audit). processed_every: steps between two audits of the
    truncated log-probs of top-p and top-k (0: never), which need a pass of their own.
    """

    most: float | None = None
    mean: float | None = None
    processed_every: int = 0


@dataclass(frozen=True)
class AlarmConfig:
    """Collapse: over the last `window` steps the mean response length below `shortest` tokens, the entropy below
    `least_entropy` nats, the share of groups without variance above `most_equal`, or the format rate below
    `least_format`. `stop`: end the run; otherwise say it once and log it.
    """

    window: int = 20
    shortest: float = 2.0
    least_entropy: float = 0.005
    most_equal: float = 0.95
    least_format: float = 0.2
    stop: bool = False


@dataclass(frozen=True)
class GrpoConfig:
    """Group-relative policy optimisation on the rewards that `reward` gives.

    reward: a function, or "FILE.py:NAME". instruction: put behind the question; None for the evidence format's own.
    steps, epochs: as in SFT, a step being `rollout.prompts` prompts. inner_epochs: updates on the same responses (μ).
    micro_batches: parts that an update is computed in. split_groups: rows that a group is spread over, where there are
    fewer prompts than devices; each repeats the prompt. lookahead: 1 samples the next step's responses while judges
    work on this one's, hence one step off-policy; the loss then carries a truncated importance weight.
    lora: adapters in place of full fine-tuning; the reference policy is then the base model.
    refresh_reference: steps after which the reference becomes the present policy (0: never).
    remat, attention: as in SFT.
    replay: a folder of recorded responses (a run's `rollouts`) to train on in place of sampling, step by step.
    page_every: steps between two pages of groups (`groups/`). recompilation: what to do about a program that is
    compiled after the first step and was not to be expected (see policy.known_programs). warm_up: compile programs
    before the first step, for all lengths that can come (see policy.warm_up). profile: steps to trace and measure
    phase by phase (see training.profile).
    """

    run_dir: Path
    model: ModelSource
    data: tuple[DatasetConfig, ...]
    reward: Annotated[RewardFunction | str, tyro.conf.arg(constructor=str, metavar="FILE.py:NAME")]
    frames: FrameOptions = field(default_factory=FrameOptions)
    instruction: str | None = None
    rollout: RolloutConfig = RolloutConfig()
    loss: PolicyLossConfig = PolicyLossConfig()
    scale_advantages: bool = True
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(learning_rate=1e-6, schedule="constant", weight_decay=1e-2)
    )
    epochs: float = 1.0
    steps: int | None = None
    inner_epochs: int = 1
    micro_batches: int = 1
    split_groups: int = 1
    lookahead: Literal[0, 1] = 0
    lora: LoraConfig | None = None
    refresh_reference: int = 0
    freeze_vision: bool = True
    remat: bool | Literal["attention"] = True
    compute: Literal["auto", "float32", "bfloat16"] = "auto"
    attention: Literal["auto", "plain"] = "auto"
    max_length: int | None = None
    max_programs: int = 8
    scoring: ScoringConfig = ScoringConfig()
    audit: AuditConfig = AuditConfig()
    alarms: AlarmConfig = AlarmConfig()
    mesh: MeshConfig = MeshConfig()
    input: InputConfig = InputConfig()
    checkpoints: CheckpointConfig = CheckpointConfig(save_every=10, metric="reward", mode="max")
    evaluate: Evaluate | None = None
    evaluate_every: int = 0
    replay: Path | None = None
    page_every: int = 0
    keep_rollouts: bool = False
    recompilation: Literal["record", "stop"] = "record"
    warm_up: bool = False
    profile: int = 0
    tensorboard: bool = True
    wandb: bool = False
    progress: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rollout.group < 2:
            raise InputError(
                f"rollout.group is {self.rollout.group}: a response is compared with the others of its group. Use 2 or "
                "more."
            )
        if self.rollout.group % self.split_groups or self.split_groups < 1:
            raise InputError(
                f"rollout.group {self.rollout.group} is not divisible by split_groups {self.split_groups}."
            )
        if self.rollout.temperature <= 0:
            raise InputError("rollout.temperature must be above 0: greedy responses of a group would all be the same.")
        if self.inner_epochs < 1 or self.micro_batches < 1:
            raise InputError(
                f"inner_epochs {self.inner_epochs} and micro_batches {self.micro_batches} must be at least 1."
            )
        if self.lookahead and self.rollout.resample_rounds:
            raise InputError(
                "lookahead draws the next step's prompts before it is known which groups of this one are drawn again: "
                "set rollout.resample_rounds or lookahead to 0."
            )
        if self.lora is not None and not self.freeze_vision:
            raise InputError("lora adapts the language model only: set freeze_vision.")
        if self.lora is not None and self.refresh_reference:
            raise InputError("with lora the reference policy is the base model: set refresh_reference to 0.")


FREE_GRPO_FIELDS = (
    *FREE_FIELDS,
    "alarms",
    "audit",
    "evaluate_every",
    "keep_rollouts",
    "page_every",
    "replay",
    "scoring",
    "wandb",
)
