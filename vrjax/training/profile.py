"""A few steps looked at closely: a trace of the profiler, and a table of their phases (`phase_table`).

RUN/profile/plugins/…      for TensorBoard (the plug-in xprof) and, as perfetto_trace.json.gz, for ui.perfetto.dev
RUN/profile/phases.json    seconds, operations and bytes of each phase
RUN/profile/phases.md      the same for people

    step 1      compiles        ┐ whatever comes first
    step 2      compiles nothing┘
    step 3 …    traced, each phase waited for

Nothing that a step computes is changed.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import jax

from vrjax.device_rates import measure_rates
from vrjax.hlo_text import read_traffic
from vrjax.ledger import Ledger
from vrjax.run_directory import RunDirectory
from vrjax.training.phase_table import as_json, as_markdown, phases_of

FOLDER, PHASES = "profile", "profile/phases.json"
T = TypeVar("T")


class StepProfile:
    """Waits for a step that compiles nothing, then takes `steps` steps. phase_of: program → phase."""

    def __init__(
        self,
        steps: int,
        ledger: Ledger,
        run: RunDirectory,
        phase_of: Mapping[str, str],
        dtype: Any,
        say: Callable[[str], None],
    ) -> None:
        self._left, self._steps = steps if run.writes else 0, 0
        self._ledger, self._run, self._phase_of, self._dtype, self._say = ledger, run, phase_of, dtype, say
        self._entries = -1  # of the ledger when the step before began
        self._asked: Counter[tuple[str, Any]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._flops: defaultdict[str, float] = defaultdict(float)
        self._turns: Counter[tuple[str, Any]] = Counter()
        self._latest: Any = None
        self._clock = 0.0
        self.on = False

    def steps(self, items: Iterable[T]) -> Iterator[T]:
        """`items`, one a step; waiting for each is the phase "input"."""
        source = iter(items)
        while True:
            self.begin()
            try:
                item = next(source)
            except StopIteration:
                return
            self.mark("input")
            yield item
            self.end()

    def begin(self) -> None:
        """A step begins."""
        entries = len(self._ledger.entries)
        if self._left and not self.on and entries == self._entries:
            jax.block_until_ready(self._latest)  # what is still computing belongs to the step before
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0
            jax.profiler.start_trace(self._run.path / FOLDER, create_perfetto_trace=True, profiler_options=options)
            self._asked = Counter(self._ledger.asked)
            self.on = True
        self._entries, self._clock, self._latest = entries, time.perf_counter(), None

    def mark(self, phase: str, arrays: Any = None, flops: Callable[[], float] | None = None) -> None:
        """What was done since the last mark was `phase`; its `arrays` are waited for. flops: of the whole phase."""
        self._latest = arrays
        if not self.on:
            return
        jax.block_until_ready(arrays)
        now = time.perf_counter()
        self._seconds[phase] += now - self._clock
        if flops is not None:
            self._flops[phase] += flops()
        self._clock = time.perf_counter()

    def enter(self, seconds: Mapping[str, float], flops: Mapping[str, float], turns: Mapping[Any, int]) -> None:
        """Phases of this step that the loop timed itself. turns: of loops whose end the program decides, by program."""
        if not self.on:
            return
        for sums, values in ((self._seconds, seconds), (self._flops, flops)):
            for phase, value in values.items():
                sums[phase] += value
        self._turns.update(turns)

    def end(self) -> None:
        """A step ends; after the last one the files are written."""
        if not self.on:
            return
        self._steps, self._left = self._steps + 1, self._left - 1
        if not self._left:
            self.close()

    def close(self) -> None:
        """Write what there is; a run may end before all steps were seen."""
        if not self.on:
            if self._left and self._entries >= 0:
                self._left = 0
                self._say("profile: the run ended before a step that compiled nothing; nothing was traced")
            return
        self.on, self._left = False, 0
        jax.profiler.stop_trace()
        if not self._steps:
            return
        asked = self._ledger.asked - self._asked
        phases = phases_of(self._seconds, self._flops, self._moved(asked), self._steps)
        device = jax.local_devices()[0]
        content = as_json(
            phases, self._steps, device.device_kind, jax.local_device_count(), measure_rates(self._dtype, device)
        )
        self._run.write_json(PHASES, content)
        self._run.write_text(f"{FOLDER}/phases.md", as_markdown(content))
        self._say(f"{self._run.path / FOLDER}: {self._steps} step(s) traced; phases.md has the table")

    def _moved(self, asked: Mapping[tuple[str, Any], int]) -> dict[str, float]:
        """Bytes of each phase: its programs' traffic, as often as they were called."""
        moved: defaultdict[str, float] = defaultdict(float)
        for (program, key), calls in asked.items():
            if program in self._phase_of:
                text = self._ledger.text(program, key)
                once, turns = read_traffic(text, 0).bytes, self._turns.get((program, key), 0)
                a_turn = read_traffic(text, 1).bytes - once if turns else 0.0
                moved[self._phase_of[program]] += calls * once + turns * a_turn
        return moved
