"""The configuration of a training run: frozen dataclasses, changed with `dataclasses.replace` or from the command line.

An experiment is a Python file that sets `config` to one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vrjax.loading import LoadedModel
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig
from vrjax.training.state import OptimizerConfig
from vrjax.training.templates import ResponseTemplate
from vrjax.video import FrameOptions

# (the model with the weights of this step, step, a folder for files) -> metrics; names may hold a slash
Evaluate = Callable[[LoadedModel, int, Path], Mapping[str, float]]


@dataclass(frozen=True)
class ModelDirectory:
    """Start from published weights: a Hugging Face directory or hub id."""

    path: str


@dataclass(frozen=True)
class FreshModel:
    """Start from random weights. tokenizer: directory of a tokenizer with Qwen's chat marks; seed: of the weights."""

    config: Qwen2_5VLConfig
    tokenizer: Path
    seed: int = 0


ModelSource = ModelDirectory | FreshModel


@dataclass(frozen=True)
class DatasetConfig:
    """One file. form: EG-VQA's records ("questions"), or conversations (see llm.conversation_file), whose template,
    frames and batch.questions are of no effect; all datasets of a run have the same form.

    weight: share in the mix; videos: folder that relative video paths start from (default: the file's own folder);
    limit: use only the first so many videos.
    """

    path: Path
    form: Literal["questions", "conversations"] = "questions"
    weight: float = 1.0
    videos: Path | None = None
    limit: int | None = None


@dataclass(frozen=True)
class BatchConfig:
    """videos: rows of a batch, over all devices; questions: most questions of a video in one row; micro_batches: parts
    that a batch is computed in, one after the other, to save memory (the result is the same).

    max_programs, max_padding: bounds of the buckets, see buckets.fit_buckets. max_length: most tokens of a prompt and
    its response (default: the model's context).
    """

    videos: int = 8
    questions: int = 4
    micro_batches: int = 1
    max_programs: int = 8
    max_padding: float = 0.2
    max_length: int | None = None


@dataclass(frozen=True)
class MeshConfig:
    """Sizes of the mesh axes; -1 takes the devices that the others leave (see vrjax.sharding)."""

    data: int = 1
    fsdp: int = -1
    seq: int = 1
    tensor: int = 1


@dataclass(frozen=True)
class InputConfig:
    """threads: batches read at a time, their videos decoded in processes that are killed after `time_limit_s` seconds.

    cache_dir: keeps decoded patches on disk, so that later epochs do not decode again. max_damaged_share: of all
    questions; past it the run stops.
    """

    threads: int = 2
    time_limit_s: float = 60.0
    cache_dir: Path | None = None
    max_damaged_share: float = 0.02


@dataclass(frozen=True)
class CheckpointConfig:
    """save_every: steps; keep_last, keep_best: how many checkpoints; the best by `metric` (`mode` min or max)."""

    save_every: int = 100
    keep_last: int = 2
    keep_best: int = 1
    metric: str = "validation/loss"
    mode: Literal["max", "min"] = "min"


@dataclass(frozen=True)
class SftConfig:
    """Supervised fine-tuning on the responses that `template` makes of the records.

    epochs: passes over the data, or `steps` where that is given. validation: held-out records, whose loss is taken
    every `validate_every` steps and at the end; evaluate: anything else to measure then. freeze_vision: the tower with
    its merger. remat: compute layers again in the backward pass, to save memory; "attention" keeps what attention gave,
    and computes the rest again. compute: type of activations (auto: bfloat16 on accelerators, float32 on CPUs).
    attention: auto takes the devices' fused form, which is held against the plain one before the first step.
    recompilation: what to do about a program that is compiled after warm-up. warm_up: compile the programs of all
    buckets before the first step, not each when its first batch comes. profile: steps to trace and measure phase by
    phase (see profile).
    """

    run_dir: Path
    model: ModelSource
    data: tuple[DatasetConfig, ...]
    validation: tuple[DatasetConfig, ...] = ()
    frames: FrameOptions = field(default_factory=FrameOptions)
    template: ResponseTemplate = field(default_factory=ResponseTemplate)
    batch: BatchConfig = BatchConfig()
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    epochs: float = 1.0
    steps: int | None = None
    freeze_vision: bool = True
    remat: bool | Literal["attention"] = True
    compute: Literal["auto", "float32", "bfloat16"] = "auto"
    attention: Literal["auto", "plain"] = "auto"
    mesh: MeshConfig = MeshConfig()
    input: InputConfig = InputConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()
    validate_every: int = 0
    evaluate: Evaluate | None = None
    log_every: int = 1
    recompilation: Literal["record", "stop"] = "record"
    warm_up: bool = False
    profile: int = 0
    tensorboard: bool = True
    progress: bool = True
    seed: int = 0


# What may change when a run goes on; everything else decides its result.
FREE_FIELDS = (
    "attention",
    "checkpoints",
    "evaluate",
    "input",
    "log_every",
    "mesh",
    "profile",
    "progress",
    "recompilation",
    "remat",
    "run_dir",
    "tensorboard",
    "validate_every",
    "warm_up",
)
