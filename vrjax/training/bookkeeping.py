"""What is noted of each step once its work is done: figures, damaged records, and that the loss is finite."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import jax
import numpy as np
from jaxtyping import Array

from vrjax.errors import RunError
from vrjax.run_directory import DAMAGE, RunDirectory
from vrjax.training.data import HostBatch
from vrjax.training.logging import RunLog
from vrjax.training.processes import gather_texts
from vrjax.training.survey import Survey


@dataclass
class StepBook:
    """damaged: records whose video could not be read while training (a resumed run brings its own along).

    Each process finds the damage of the rows that it reads; `tell_damage` makes it known to all.
    """

    run: RunDirectory
    log: RunLog
    survey: Survey
    max_damaged_share: float
    log_every: int = 1
    damaged: set[str] = field(default_factory=set)
    _untold: list[tuple[int, str, str]] = field(default_factory=list)  # step, name, message
    _clock: float = field(default_factory=time.perf_counter)

    def restart_clock(self) -> None:
        """Leave out of the next step's seconds what was done since the last."""
        self._clock = time.perf_counter()

    def enter(self, step: int, batch: HostBatch, metrics: dict[str, Array], *, last: bool = False) -> None:
        """Wait for a step and note it. Raises RunError where its loss or gradient is not finite, or too many records
        are damaged.
        """
        values = {name: float(value) for name, value in metrics.items()}
        now = time.perf_counter()
        seconds, self._clock = now - self._clock, now
        if not (math.isfinite(values["loss"]) and math.isfinite(values["grad_norm"])):
            raise RunError(self._keep_batch(step, batch, values))
        self._count_damage(step, batch.damaged)
        speed = values["tokens"] / seconds
        if step % self.log_every == 0 or last:
            figures = {"epoch": batch.epoch, "padding": batch.padding, "seconds": seconds, "tokens_per_second": speed}
            self.log.metrics(step, {**values, **figures})
        self.log.advance(step, f"loss {values['loss']:.4f}  {speed:,.0f} tokens/s")

    def _keep_batch(self, step: int, batch: HostBatch, values: dict[str, float]) -> str:
        file = self.run.path / f"nonfinite_step_{step}.npz"
        arrays = {name: np.asarray(value) for name, value in vars(batch.rows.text).items()}
        patches = np.asarray(batch.rows.vision.patches)
        np.savez_compressed(file, allow_pickle=False, patches=patches, names=np.array(batch.names), **arrays)
        return (
            f"step {step}: the loss is {values['loss']} and the gradient's norm {values['grad_norm']}. The batch holds "
            f"the records {', '.join(batch.names)}; it is kept in {file}. Look at them, or lower the learning "
            "rate; started again, the run goes on from its last checkpoint."
        )

    def _count_damage(self, step: int, found: Iterable[tuple[str, str]]) -> None:
        new = {name: message for name, message in found if name not in self.damaged}
        if not new:
            return
        self._untold += [(step, name, message) for name, message in new.items()]
        self.damaged.update(new)
        if jax.process_count() == 1:
            self.tell_damage()
        self._check_share(step, *list(new.items())[-1])

    def tell_damage(self) -> None:
        """Put the damage that all processes have found since the last call in `damage.jsonl`; all of them must call
        this. Raises RunError where it is too much.
        """
        told = [tuple(item) for text in gather_texts(json.dumps(self._untold)) for item in json.loads(text)]
        self._untold = []
        found = {name: (step, message) for step, name, message in sorted(told, reverse=True)}
        if not found:
            return
        rows = [{"step": step, "record": name, "message": text} for name, (step, text) in sorted(found.items())]
        self.run.append(DAMAGE, rows)
        for row in rows:
            self.log.say(f"record {row['record']} is damaged and trains nothing: {row['message']}")
        self.damaged.update(found)
        self._check_share(rows[-1]["step"], rows[-1]["record"], rows[-1]["message"])

    def _check_share(self, step: int, name: str, message: str) -> None:
        lost = sum(len(row.questions) for row in self.survey.rows if row.name in self.damaged)
        share = (len(self.survey.damaged) + lost) / self.survey.questions
        if share > self.max_damaged_share:
            raise RunError(
                f"step {step}: {share:.1%} of the questions cannot be trained on, more than the share of "
                f"{self.max_damaged_share:g} that input.max_damaged_share allows. The last: record {name}: {message}"
            )
