"""What a run's programs are padded to: the buckets of its data, or the largest that its configuration allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vrjax.errors import InputError
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig
from vrjax.models.qwen2_5_vl.layout import Grid, frame_shape, has_whole_windows, window_slots
from vrjax.run_directory import RunDirectory
from vrjax.training.buckets import RowSize, fit_buckets
from vrjax.training.config import SftConfig
from vrjax.training.policy.config import GrpoConfig
from vrjax.training.preparation import count_steps
from vrjax.training.schedule import Schedule
from vrjax.training.survey import NOTHING, Survey
from vrjax.video import VideoInfo, plan_frames

_FPS = 30.0


@dataclass(frozen=True)
class AssumedVideo:
    """The video that stands in for data that is not at hand. question: tokens of its text; response: of an answer."""

    width: int = 1280
    height: int = 720
    seconds: float = 600.0
    question: int = 512
    response: int = 256


@dataclass(frozen=True)
class Workload:
    """buckets: sizes that rows are padded to, from small to large; grids: of the images and videos of one prompt, of
    each kind that occurs; steps: of the run; source: where this comes from, a sentence.
    """

    buckets: tuple[RowSize, ...]
    grids: tuple[tuple[Grid, ...], ...]
    steps: int
    source: str


def find_workload(config: GrpoConfig | SftConfig, model: Qwen2_5VLConfig, assumed: AssumedVideo) -> Workload:
    """From the survey of a run that has been started (`survey.json` in its directory), else from the configuration.

    Raises InputError where the configuration leaves no room for a video's tokens.
    """
    run = RunDirectory(Path(config.run_dir), writes=False)
    kept = run.read_json("survey.json")
    if kept is not None:
        held_out = run.read_json("survey_validation.json") if isinstance(config, SftConfig) else None
        surveys = [Survey.from_json(part["survey"]) for part in (kept, held_out) if part is not None]
        return _surveyed(config, surveys, run.path)
    return _largest(config, model, assumed)


def _surveyed(config: GrpoConfig | SftConfig, surveys: Sequence[Survey], path: Path) -> Workload:
    sizes = [row.size for survey in surveys for row in survey.rows if row.size != NOTHING]
    if isinstance(config, SftConfig):
        buckets = fit_buckets(sizes, config.batch.max_programs, config.batch.max_padding)
        rows = config.batch.videos
    else:
        buckets, rows = fit_buckets(sizes, config.max_programs), config.rollout.prompts
    grids = {tuple(plan.grids) for survey in surveys for plan in survey.plans if plan is not None}
    steps = config.steps
    if steps is None:
        first = surveys[0].rows  # of all datasets; how they are mixed changes the order, not the number of batches
        schedule = Schedule([row.size for row in first], [len(first)], [1.0], buckets, rows, config.seed)
        steps = count_steps(schedule, config.epochs)
    return Workload(buckets, tuple(sorted(grids)), steps, f"the survey in {path}")


def _largest(config: GrpoConfig | SftConfig, model: Qwen2_5VLConfig, assumed: AssumedVideo) -> Workload:
    frames = max(int(assumed.seconds * _FPS), 1)
    info = VideoInfo(
        f"a video of {assumed.width}x{assumed.height} and {assumed.seconds:g} s", frames, _FPS, assumed.width,
        assumed.height, frames / _FPS, np.arange(frames) / _FPS, "",
    )  # fmt: skip
    grids = tuple(plan_frames(info, config.frames).grids)
    shapes = [frame_shape(grid, model.vision) for grid in grids]
    patches, windows = max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)
    whole = all(has_whole_windows(grid, model.vision) for grid in grids)
    whole = whole and patches == windows * window_slots(model.vision)
    vision = sum(grid[0] * grid[1] * grid[2] for grid in grids) // model.vision.merge_size**2
    if isinstance(config, GrpoConfig):
        response, limit = config.rollout.max_tokens, config.max_length
    else:
        response, limit = config.batch.questions * (assumed.question + assumed.response), config.batch.max_length
    context = model.text.max_positions
    length = min(limit, context) if limit is not None else min(vision + assumed.question + response, context)
    targets = response if isinstance(config, GrpoConfig) else config.batch.questions * assumed.response
    room = length - targets
    if room < vision:
        raise InputError(
            f"{info.path} takes {vision} tokens, but rows of {length} tokens leave {room} for it beside the responses. "
            "Use fewer frames or a lower max_pixels, raise max_length, or assume a smaller video (--video)."
        )
    size = RowSize(length, targets, sum(grid[0] for grid in grids), patches, windows, int(not whole))
    steps = config.steps if config.steps is not None else max(1000, 2 * config.optimizer.warmup)
    source = f"the configuration's largest rows, with {info.path} ({len(grids)} grid(s) of {grids[0]})"
    return Workload((size,), (grids,), steps, source)
