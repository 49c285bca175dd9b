"""Does the evidence reward help, over seeds and against a fair control?

For each seed, from one supervised checkpoint that saw coarse labels (boundaries widened at random):

    sft          the checkpoint itself
    grpo         policy optimisation, rewarded by exact labels
    sft_longer   the control: supervised fine-tuning goes on, on the coarse labels, for the same time
    sft_exact    an upper mark: supervised fine-tuning goes on for the same time, on the exact labels

    python -m experiments.demo_seeds                     an hour and a half on one core
    python -m experiments.demo_seeds --seeds 0 --out runs/one_seed

Writes OUT/summary.json with every stage of every seed, and the paired gains of grpo with their 95% intervals
(bootstrap over videos). A second call goes on where the first was cut off.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from experiments.command import run_command
from experiments.demo import sentence_model
from experiments.seed_run import SeedRun, show_stages, stage_interval, summaries
from vrjax.evidence import make_similarity

console = Console()
LEAST_GAIN = 0.03
OTHERS = ("sft", "sft_longer", "sft_exact")


@dataclass(frozen=True)
class DemoSeeds:
    """Compare policy optimisation with longer fine-tuning, over several seeds.

    Examples::

        python -m experiments.demo_seeds
        python -m experiments.demo_seeds --seeds 0 1 --grpo-steps 60 --longer-steps 180
    """

    out: Path = Path("runs/demo_seeds")
    """A folder for each seed goes here."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of clips, weights, labels and sampling."""
    steps: int = 1800
    """Steps of supervised fine-tuning: until more of it gains nothing, or the controls would gain by going on."""
    grpo_steps: int = 120
    """Steps of policy optimisation."""
    longer_steps: int = 0
    """Steps by which fine-tuning goes on in the controls; 0: for as long as policy optimisation took."""
    test_clips: int = 240
    """Held-out clips of each seed."""


def run(options: DemoSeeds) -> int:
    similarity = make_similarity(sentence_model(), options.out / "embeddings")
    seeds = []
    for seed in options.seeds:
        console.rule(f"seed {seed}")
        one = SeedRun(options.out / f"seed{seed}", seed, similarity, test_clips=options.test_clips)
        base = one.supervise(options.steps)
        one.stage("sft/question_only", None, "question_only")
        one.stage("grpo", one.policy("grpo", options.grpo_steps))
        one.stage("grpo/question_only", None, "question_only")
        steps = options.longer_steps or one.steps_in_the_time_of("grpo", options.steps)
        one.stage("sft_longer", one.longer("sft_longer", base, "_coarse", steps))
        one.stage("sft_exact", one.longer("sft_exact", base, "", steps))
        seeds.append(one)
    gains = {
        f"grpo - {other}": {key: stage_interval(seeds, "grpo", key, other) for key in ("soft_eg_f1", "answer")}
        for other in OTHERS
    }
    content = {
        "seeds": summaries(seeds),
        "gains": {name: {key: asdict(gain) for key, gain in row.items()} for name, row in gains.items()},
        "similarity": similarity.name,
    }
    (options.out / "summary.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    show_stages(console, seeds)
    for name, row in gains.items():
        for key, gain in row.items():
            console.print(f"{name}, {key}: {gain}")
    held = [gains[f"grpo - {other}"] for other in ("sft", "sft_longer")]
    good = all(
        row["soft_eg_f1"].mean >= LEAST_GAIN and row["soft_eg_f1"].low > 0 and row["answer"].high >= 0 for row in held
    )
    if not good:
        console.print(f"the evidence reward did not gain {LEAST_GAIN} over both, or answers became worse")
    return 0 if good else 1


if __name__ == "__main__":
    run_command(DemoSeeds, run, "experiments.demo_seeds")
