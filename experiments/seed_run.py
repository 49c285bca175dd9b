"""One seed of a comparison on clips of coloured shapes: a supervised checkpoint on coarse labels, and stages from it.

Each stage is trained and measured once and kept in its folder (`scores.json`), so that a comparison that was cut short
goes on where it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.command import go_on_if_finished
from experiments.demo import KEYS, Demo, evaluate, make_clips, stage_summary
from experiments.shapes_grpo import make_config as make_policy_config
from experiments.shapes_sft import make_coarse_labels, make_config, make_tokenizer
from vrjax.evaluation.evidence_questions import AskedQuestion, Condition
from vrjax.evaluation.intervals import Interval, clustered_interval
from vrjax.evidence import Similarity
from vrjax.loading import load_run, save
from vrjax.records import VideoRecord, load_records
from vrjax.training import DatasetConfig, GrpoConfig, ModelDirectory, OptimizerConfig, SftConfig, grpo, sft


@dataclass
class SeedRun:
    """rows: by stage, its seconds, summary and the scores of each question."""

    folder: Path
    seed: int
    similarity: Similarity
    clips: int = 2000
    test_clips: int = 240
    rows: dict[str, Any] = field(default_factory=dict)
    _records: list[VideoRecord] = field(default_factory=list)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def base_model(self) -> Path:
        """The supervised checkpoint as a model directory, made by `supervise`."""
        return self.folder / "sft_model"

    def supervise(self, steps: int) -> SftConfig:
        """Clips, coarse labels, and the checkpoint that all other stages start from; returns its configuration."""
        demo = Demo(out=self.folder, seed=self.seed, clips=self.clips, test_clips=self.test_clips)
        make_clips(demo, self.data)
        make_coarse_labels(self.data, self.seed)
        self._records = load_records(self.data / "test.json")
        tokenizer, vocabulary = make_tokenizer(self.data)
        config = make_config(
            self.data, tokenizer, vocabulary, self.folder / "sft", steps=steps, seed=self.seed, labels="_coarse"
        )
        self.stage("sft", config)
        if not self.base_model.exists():
            save(load_run(self.folder / "sft")[0], self.base_model)
        return config

    def policy(self, name: str, steps: int) -> GrpoConfig:
        """Policy optimisation from the supervised checkpoint, as in the demo."""
        return make_policy_config(
            self.data, self.base_model, self.folder / name, self.similarity, steps=steps, seed=self.seed
        )

    def longer(self, name: str, base: SftConfig, labels: str, steps: int) -> SftConfig:
        """Fine-tuning that goes on from the checkpoint, its rate rising again to a fifth of the first peak."""
        optimizer: OptimizerConfig = replace(base.optimizer, learning_rate=base.optimizer.learning_rate / 5, warmup=5)
        return replace(
            base,
            run_dir=self.folder / name,
            model=ModelDirectory(str(self.base_model)),
            data=(DatasetConfig(self.data / f"train{labels}.json"),),
            validation=(),
            validate_every=0,
            optimizer=optimizer,
            steps=max(steps, 10),
            seed=base.seed + 1000,  # another order than the stage before
        )

    def steps_in_the_time_of(self, stage: str, steps: int) -> int:
        """How many steps of fine-tuning fit in the time of `stage`, where "sft" took `steps`."""
        return round(steps * self.rows[stage]["seconds"] / self.rows["sft"]["seconds"])

    def stage(self, name: str, config: SftConfig | GrpoConfig | None, condition: Condition = "full") -> None:
        """Train (where there is a configuration) and measure; the row is kept with the seconds that training took.

        A name with a slash measures the stage before it under another condition.
        """
        kept = self.folder / name.replace("/", "_") / "scores.json"
        if not kept.exists():
            start = time.perf_counter()
            if isinstance(config, SftConfig):
                go_on_if_finished(sft(config))
            elif config is not None:
                go_on_if_finished(grpo(config))
            seconds = time.perf_counter() - start
            model, _ = load_run(self.folder / name.split("/")[0])
            asked = evaluate(model, self._records, self.data, self.similarity, condition, self.seed)
            kept.parent.mkdir(parents=True, exist_ok=True)
            row = {
                "seconds": seconds,
                "summary": stage_summary(asked, self.similarity),
                "questions": per_question(asked),
            }
            partial = kept.with_suffix(".partial")
            partial.write_text(json.dumps(row) + "\n", encoding="utf-8")
            partial.replace(kept)
        self.rows[name] = json.loads(kept.read_text(encoding="utf-8"))


def per_question(asked: Sequence[AskedQuestion]) -> list[dict[str, Any]]:
    """What comparisons pair: the scores of each question."""
    return [
        {
            "video": one.record.video_id,
            "question": one.question.question_id,
            "type": one.question.type,
            "soft_eg_f1": one.score.value("soft_eg_f1"),
            "avg_eg_f1": one.score.value("avg_eg_f1"),
            "answer": one.score.item.answer_score or 0.0,
        }
        for one in asked
    ]


def stage_interval(seeds: Sequence[SeedRun], stage: str, key: str, other: str | None = None) -> Interval:
    """Mean of a score over all seeds' questions, or its gain over another stage on the same questions.

    Whole videos are resampled.
    """
    values, clusters = [], []
    for run in seeds:
        theirs = run.rows[stage if other is None else other]["questions"]
        for mine, their in zip(run.rows[stage]["questions"], theirs, strict=True):
            if mine["question"] != their["question"]:
                raise ValueError(f"stages {stage} and {other} were measured on different questions")
            values.append(mine[key] - (0.0 if other is None else their[key]))
            clusters.append((run.seed, mine["video"]))
    return clustered_interval(values, clusters)


def show_stages(console: Console, seeds: Sequence[SeedRun]) -> None:
    """Every stage of every seed as a table."""
    table = Table(title="held-out clips")
    for heading in ("seed", "stage", *KEYS, "seconds"):
        table.add_column(heading)
    for run in seeds:
        for stage, row in run.rows.items():
            values = (f"{row['summary'][key]:.3f}" for key in KEYS)
            table.add_row(str(run.seed), stage, *values, f"{row['seconds']:.0f}")
    console.print(table)


def summaries(seeds: Sequence[SeedRun]) -> dict[str, Mapping[str, Any]]:
    """Figures of each seed and stage, for a JSON file."""
    return {
        str(run.seed): {stage: row["summary"] | {"seconds": row["seconds"]} for stage, row in run.rows.items()}
        for run in seeds
    }
