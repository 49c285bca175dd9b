"""What a configuration names, opened: the model to start from, and the records with their survey."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from vrjax.checkpoints import write_model_files
from vrjax.errors import InputError, RunError
from vrjax.generation.chat_forms import QWEN
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.generation.recipe import PromptRecipe
from vrjax.loading import MODEL, LoadedModel, abstract_model, load
from vrjax.models.qwen2_5_vl import Qwen2_5VL, Qwen2_5VLConfig
from vrjax.records import VideoRecord, load_records
from vrjax.run_directory import RunDirectory, resolved
from vrjax.sharding import parameter_shardings, update_rules
from vrjax.training.config import DatasetConfig, FreshModel, InputConfig, ModelSource
from vrjax.training.data import Corpus
from vrjax.training.patch_cache import PatchCache
from vrjax.training.survey import RowText, Survey, resolve_video, survey_records
from vrjax.video import FrameOptions, FramePlan, ReaderPool, load_patches, plan_frames

Say = Callable[[str], None]


def open_model(source: ModelSource, mesh: Mesh) -> LoadedModel:
    """The model that training starts from, in float32, spread over the mesh by the update's rules.

    Raises InputError or CheckpointError where it cannot be loaded or is not of a kind that is trained here.
    """
    if not isinstance(source, FreshModel):
        model = load(source.path, dtype=jnp.float32, mesh=mesh, rules=update_rules())
        if not isinstance(model.config, Qwen2_5VLConfig):
            raise InputError(f"{source.path}: only Qwen2.5-VL models are trained, not {type(model.config).__name__}.")
        return model
    config = source.config
    chat = ChatTokenizer.load(source.tokenizer)
    if chat.form != QWEN:
        raise InputError(f"{source.tokenizer}: has no chat marks and vision marks of Qwen's. Build it with them.")
    if len(chat.tokenizer) > config.text.vocabulary:
        raise InputError(
            f"{source.tokenizer}: has {len(chat.tokenizer)} tokens, more than the model's {config.text.vocabulary}."
        )
    graph, shapes = abstract_model(config)
    shardings = parameter_shardings(shapes, mesh, update_rules(), config)
    build = jax.jit(lambda: nnx.split(Qwen2_5VL(config, nnx.Rngs(source.seed)))[1], out_shardings=shardings)
    return LoadedModel(config, graph, build(), chat)


def keep_model_files(model: LoadedModel, recipe: PromptRecipe, run: RunDirectory) -> None:
    """Write configuration, tokenizer and prompt recipe into the run directory; `vrjax.loading.load_run` reads them."""
    folder = run.path / MODEL
    if run.writes and not (folder / "config.json").exists():
        try:
            write_model_files(model.config, model.chat, folder)
            recipe.write(folder)
        except OSError as error:
            raise RunError(f"{folder}: cannot be written ({error}). Check the folder and the free space.") from error


def open_corpus(
    datasets: Sequence[DatasetConfig],
    text: RowText,
    frames: FrameOptions,
    options: InputConfig,
    questions_per_row: int,
    run: RunDirectory,
    name: str,
    pool: ReaderPool,
    say: Say,
) -> Corpus:
    """Read and survey the records; the survey is kept in the run directory as `NAME.json` and used when resuming.

    Raises InputError for files that cannot be used, RunError where more than `max_damaged_share` of the questions are
    damaged.
    """
    vision = text.config.vision
    sizes = (frames.patch_size, frames.temporal_patch_size, frames.merge_size)
    if sizes != (vision.patch_size, vision.temporal_patch_size, vision.merge_size):
        raise InputError(
            f"frames: patch sizes {sizes} differ from the model's "
            f"{(vision.patch_size, vision.temporal_patch_size, vision.merge_size)}. Take the model's."
        )
    records, counts = _read(datasets)
    fingerprint = _fingerprint(records, text, frames, questions_per_row)
    kept = run.read_json(f"{name}.json")
    if kept is not None and kept["fingerprint"] == fingerprint:
        survey = Survey.from_json(kept["survey"])
    elif kept is not None:
        raise InputError(
            f"{run.path}: the records in {', '.join(str(dataset.path) for dataset in datasets)} have changed since the "
            "run started. Restore them, or use another run_dir."
        )
    else:

        def plan(record: VideoRecord) -> FramePlan:
            return plan_frames(record.video_path, frames, time_limit_s=options.time_limit_s, pool=pool)

        survey = survey_records(records, plan, text, questions_per_row, threads=options.threads)
        run.write_json(f"{name}.json", {"fingerprint": fingerprint, "survey": survey.to_json()})
    report_damage(survey, options.max_damaged_share, name, say)
    rows_of = [0] * len(datasets)
    dataset_of = [number for number, count in enumerate(counts) for _ in range(count)]
    for row in survey.rows:
        rows_of[dataset_of[row.record]] += 1

    def decode(plan: FramePlan) -> Any:
        return load_patches(plan, time_limit_s=options.time_limit_s, pool=pool)

    cache = None if options.cache_dir is None else PatchCache(options.cache_dir)
    return Corpus(tuple(records), survey, tuple(rows_of), text, decode, cache)


def report_damage(survey: Survey, max_share: float, name: str, say: Say) -> None:
    """Name and count the damaged questions. Raises RunError where there are too many, or nothing is left."""
    if survey.damaged:
        counts = ", ".join(f"{count} {damage}" for damage, count in sorted(survey.damage_counts().items()))
        say(f"{name}: {len(survey.damaged)} of {survey.questions} questions are damaged ({counts}):")
        for item in survey.damaged[:20]:
            say(f"  {item.name}: {item.damage}: {item.message}")
        if len(survey.damaged) > 20:
            say(f"  … and {len(survey.damaged) - 20} more, all listed in {name}.json")
    if survey.damaged_share > max_share or len(survey.damaged) == survey.questions:
        first = f" The first is {survey.damaged[0].name}: {survey.damaged[0].message}" if survey.damaged else ""
        raise RunError(
            f"{name}: {len(survey.damaged)} of {survey.questions} questions cannot be trained on, more than the share "
            f"of {max_share:g} that input.max_damaged_share allows.{first}"
        )


def _read(datasets: Sequence[DatasetConfig]) -> tuple[list[VideoRecord], list[int]]:
    records: list[VideoRecord] = []
    counts = []
    for dataset in datasets:
        found = load_records(dataset.path)[: dataset.limit]
        if not found:
            raise InputError(f"{dataset.path}: holds no videos. Check the file and the limit.")
        root = dataset.videos or Path(dataset.path).parent
        records += [record.model_copy(update={"video_path": str(resolve_video(record, root))}) for record in found]
        counts.append(len(found))
    return records, counts


def _fingerprint(records: Sequence[VideoRecord], text: RowText, frames: FrameOptions, questions_per_row: int) -> str:
    """Hash of all that row sizes depend on."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(record.model_dump_json().encode())
    settings = [
        resolved(text.template),
        text.template.instruction_text,
        text.max_length,
        dataclasses.asdict(text.config),
        resolved(frames),
        questions_per_row,
        len(text.chat.tokenizer),
    ]
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()
