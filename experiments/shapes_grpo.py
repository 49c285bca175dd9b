"""GRPO with an evidence reward on clips of coloured shapes, from a model that learned on coarse labels.

`make_config` is the demo's second stage. To run it alone, after `make demo` or `experiments/shapes_sft.py`:

    vrjax export runs/shapes runs/shapes_model
    vrjax train experiments/shapes_grpo.py --run-dir runs/shapes_grpo
"""

from pathlib import Path

from experiments.shapes_sft import FRAMES
from vrjax.evidence import Similarity, make_similarity
from vrjax.rewards import CompositeReward, RuleAnswer, eg_reasoner_reward
from vrjax.training import (
    CheckpointConfig,
    DatasetConfig,
    GrpoConfig,
    InputConfig,
    ModelDirectory,
    OptimizerConfig,
    PolicyLossConfig,
    RolloutConfig,
)


def shapes_reward(similarity: Similarity, *, evidence_weight: float = 0.3, soft: bool = True) -> CompositeReward:
    """EG-Reasoner's reward, .1 format + .6 answer + .3 evidence, with a rule in the judge's place: an answer is right
    where it equals the reference.
    """
    return eg_reasoner_reward(RuleAnswer("exact"), similarity, evidence_weight=evidence_weight, soft=soft)


def make_config(
    data: Path, model: Path, run_dir: Path, similarity: Similarity, *, steps: int, seed: int = 0
) -> GrpoConfig:
    """GRPO on the exact labels of `data`/train.json: 8 responses to each of 8 questions a step, vision frozen."""
    return GrpoConfig(
        run_dir=run_dir,
        model=ModelDirectory(str(model)),
        data=(DatasetConfig(data / "train.json"),),
        reward=shapes_reward(similarity),
        frames=FRAMES,
        instruction="",
        rollout=RolloutConfig(prompts=8, group=8, max_tokens=64, top_p=1.0, batch_rows=64),
        loss=PolicyLossConfig(kl_weight=0.1),
        optimizer=OptimizerConfig(learning_rate=2e-5, warmup=5, b2=0.99, final_share=0.1, weight_decay=0.0),
        steps=steps,
        remat=False,
        input=InputConfig(cache_dir=data / "patches"),
        checkpoints=CheckpointConfig(save_every=50, keep_last=1),
        seed=seed,
    )


def __getattr__(name: str) -> GrpoConfig:
    if name == "config":  # made when asked for: it needs the clips and the model
        similarity = make_similarity("tokens")
        return make_config(
            Path("data/shapes"), Path("runs/shapes_model"), Path("runs/shapes_grpo"), similarity, steps=120
        )
    raise AttributeError(name)
