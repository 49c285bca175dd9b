"""SIGTERM (preemption) as a wish that the training loop grants between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

import jax


class TerminationRequest:
    """Within the context SIGTERM only sets a flag. `reached(step)` says whether to save and leave after this step.

    Over several processes all leave after the same step (JAX's preemption service agrees on it). Outside of the main
    thread, where Python takes no signals, nothing is installed.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._before: Any = None
        self._installed = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._asked.set()

    def __enter__(self) -> TerminationRequest:
        if threading.current_thread() is threading.main_thread() and jax.process_count() == 1:
            self._before = signal.signal(signal.SIGTERM, self._on_signal)
            self._installed = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)
            self._installed = False

    def reached(self, step: int) -> bool:
        if jax.process_count() > 1:
            from jax.experimental import multihost_utils

            return bool(multihost_utils.reached_preemption_sync_point(step))
        return self._asked.is_set()
