"""EG-Reasoner's ablation table on clips of coloured shapes: what each term of the reward is worth.

From one checkpoint that saw coarse labels (the base), on several seeds:

    base                    the checkpoint itself
    sft                     supervised fine-tuning goes on, on the exact labels
    rl_without_evidence     reward of format and answer alone
    rl_without_soft         evidence reward without its soft part
    full                    EG-Reasoner's reward

    python -m experiments.ablations.shapes               an hour or two on two cores

Base, full and SFT are the stages sft, grpo and sft_exact of `experiments.demo_seeds`: in the same folder, what
either has trained the other takes.

Writes OUT/table.md and OUT/summary.json: means over all seeds' questions with 95% intervals (bootstrap over videos),
and paired gains of the full reward. The paper's order in Avg EG-F1 is full > without soft > without evidence.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from experiments.command import run_command
from experiments.demo import sentence_model
from experiments.seed_run import SeedRun, show_stages, stage_interval, summaries
from experiments.shapes_grpo import shapes_reward
from vrjax.evidence import make_similarity

console = Console()
STAGES = {"base": "sft", "sft": "sft_exact", "rl_without_evidence": "", "rl_without_soft": "", "full": "grpo"}
"""Row of the table, and the stage's name where it has another."""
SCORES = ("answer", "soft_eg_f1", "avg_eg_f1")


@dataclass(frozen=True)
class ShapesAblations:
    """Run the ablation table on clips of coloured shapes.

    Examples::

        python -m experiments.ablations.shapes
        python -m experiments.ablations.shapes --seeds 0 --steps 800 --policy-steps 60 --out runs/quick
    """

    out: Path = Path("runs/demo_seeds")
    """A folder for each seed goes here, or is there already."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of clips, weights, labels and sampling."""
    steps: int = 1200
    """Steps of supervised fine-tuning before all stages."""
    policy_steps: int = 240
    """Steps of each stage with a reward."""
    longer_steps: int = 0
    """Steps by which fine-tuning goes on; 0: for as long as the full reward's stage took."""
    test_clips: int = 240
    """Held-out clips of each seed."""


def run(options: ShapesAblations) -> int:
    similarity = make_similarity(sentence_model(), options.out / "embeddings")
    rewards = {
        "grpo": shapes_reward(similarity),
        "rl_without_soft": shapes_reward(similarity, soft=False),
        "rl_without_evidence": shapes_reward(similarity, evidence_weight=0.0),
    }
    seeds = []
    for seed in options.seeds:
        console.rule(f"seed {seed}")
        one = SeedRun(options.out / f"seed{seed}", seed, similarity, test_clips=options.test_clips)
        base = one.supervise(options.steps)
        for name, reward in rewards.items():
            one.stage(name, replace(one.policy(name, options.policy_steps), reward=reward))
        steps = options.longer_steps or one.steps_in_the_time_of("grpo", options.steps)
        one.stage("sft_exact", one.longer("sft_exact", base, "", steps))
        for row, stage in STAGES.items():
            one.rows[row] = one.rows.pop(stage or row)
        seeds.append(one)
    means = {stage: {key: stage_interval(seeds, stage, key) for key in SCORES} for stage in STAGES}
    gains = {
        f"full - {other}": {key: stage_interval(seeds, "full", key, other) for key in SCORES}
        for other in STAGES
        if other != "full"
    }
    lines = ["| row | answers | soft EG-F1 | Avg EG-F1 |", "|---|---|---|---|"]
    lines += [
        f"| {name} | " + " | ".join(str(row[key]) for key in SCORES) + " |" for name, row in (means | gains).items()
    ]
    (options.out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    content = {
        "seeds": summaries(seeds),
        "means": {name: {key: asdict(value) for key, value in row.items()} for name, row in means.items()},
        "gains": {name: {key: asdict(value) for key, value in row.items()} for name, row in gains.items()},
    }
    (options.out / "summary.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    show_stages(console, seeds)
    console.print("\n".join(lines), markup=False)
    return 0


if __name__ == "__main__":
    run_command(ShapesAblations, run, "experiments.ablations.shapes")
