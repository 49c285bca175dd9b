"""Models as directories: `load` a Hugging Face directory or hub id, `save` one that transformers and vLLM load."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from vrjax.checkpoints import gguf_file
from vrjax.checkpoints.digests import digests
from vrjax.checkpoints.hugging_face import SHARD_BYTES, Progress, load_parameters, write_parameters
from vrjax.checkpoints.model_files import write_model_files
from vrjax.checkpoints.training_state import TrainingCheckpoints
from vrjax.checkpoints.whole_directory import whole_directory
from vrjax.errors import CheckpointError, InputError
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.generation.recipe import FILE_NAME as PROMPT_RECIPE
from vrjax.models.lora import LoraConfig, make_adapters, merge_adapters
from vrjax.models.parameters import abstract_parameters, cast_parameters
from vrjax.models.registry import architecture_of, read_config
from vrjax.sharding import Rules, parameter_shardings, rollout_rules

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "merges.txt"]
# Where a run directory keeps its checkpoints, and the configuration and tokenizer of its model.
CHECKPOINTS, MODEL = "checkpoints", "model"
# In there where the checkpoints hold adapters: which, and of what base model.
ADAPTER = "adapter.json"
# Files that go from a model's directory into its export as they are.
KEPT_FILES = (
    PROMPT_RECIPE,
    "generation_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "chat_template.json",
    "chat_template.jinja",
)


@dataclass(frozen=True)
class GenerationDefaults:
    """What generation_config.json recommends; None where it says nothing. `end_ids`: any of them ends a response."""

    end_ids: tuple[int, ...] = ()
    do_sample: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None

    @staticmethod
    def read(path: Path) -> GenerationDefaults:
        """Read the file; all None where there is none. Raises CheckpointError where it is not JSON."""
        if not path.is_file():
            return GenerationDefaults()
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            ends = raw.get("eos_token_id")
        except (OSError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path}: not a generation configuration ({error}). Copy the file again.") from error
        ids = () if ends is None else tuple(ends) if isinstance(ends, list) else (ends,)
        names = ("do_sample", "temperature", "top_p", "top_k", "repetition_penalty")
        return GenerationDefaults(ids, **{name: raw.get(name) for name in names})


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run: `nnx.merge(graph, params)` is the module.

    directory: where it came from, None for a model made in this process.
    """

    config: Any
    graph: nnx.GraphDef
    params: nnx.State
    chat: ChatTokenizer
    generation: GenerationDefaults = GenerationDefaults()
    directory: Path | None = None


def fingerprint(model: LoadedModel) -> str:
    """Twelve digits that name a model's configuration, vocabulary and weights."""
    arrays = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(model.params)}
    content = [
        repr(model.config),
        sorted(model.chat.tokenizer.get_vocab().items()),
        sorted((key, str(array.dtype), list(array.shape)) for key, array in arrays.items()),
        sorted(digests(arrays).items()),
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def abstract_model(config: Any) -> tuple[nnx.GraphDef, nnx.State]:
    """Graph definition and parameter shapes of a configuration; takes no memory."""
    architecture = architecture_of(config)
    return abstract_parameters(lambda: architecture.build(config, nnx.Rngs(0)))


def load(
    source: str | Path,
    *,
    dtype: Any = None,
    mesh: Mesh | None = None,
    rules: Rules | None = None,
    progress: Progress | None = None,
) -> LoadedModel:
    """Load a model from a directory, or from the Hugging Face hub by its id ("Qwen/Qwen2.5-VL-3B-Instruct").

    dtype: of all parameters; default float32 on CPU, bfloat16 on accelerators; "stored" keeps the file's.
    mesh, rules: spread them over a mesh (default rules: `rollout_rules`); without a mesh they go to the first device.
    progress: see `load_parameters`.

    Raises InputError where the source is not there or cannot be fetched, CheckpointError where the checkpoint does not
    fit its config.json or its type is not supported.
    """
    directory = _directory_of(source)
    config = read_config(directory / "config.json")
    graph, shapes = abstract_model(config)
    shardings = None if mesh is None else parameter_shardings(shapes, mesh, rules or rollout_rules(), config)
    generation = GenerationDefaults.read(directory / "generation_config.json")
    chat = ChatTokenizer.load(directory, generation.end_ids or None)
    if dtype is None:
        dtype = jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    wanted = None if isinstance(dtype, str) and dtype == "stored" else dtype
    params = load_parameters(directory, shapes, dtype=wanted, shardings=shardings, progress=progress)
    return LoadedModel(config, graph, params, chat, generation, directory)


def load_gguf(path: str | Path, *, dtype: Any = jnp.float32) -> LoadedModel:
    """Load the Llama in a GGUF file, dequantised; `save` writes it as a Hugging Face directory.

    Raises InputError where the file or the package gguf is missing, CheckpointError where the file cannot be used.
    """
    file = gguf_file.GGUFFile.open(path)
    config = gguf_file.read_config(file)
    graph, shapes = abstract_model(config)
    ends = gguf_file.end_ids(file)
    chat = ChatTokenizer.of(gguf_file.read_tokenizer(file), ends or None)
    params = gguf_file.read_parameters(file, config, shapes, jnp.dtype(dtype))
    return LoadedModel(config, graph, params, chat, GenerationDefaults(ends))


def write_adapter_note(folder: Path, config: LoraConfig, base: str) -> None:
    """Keep in a run's model folder that its checkpoints hold adapters of `base` (a directory or hub id)."""
    text = json.dumps({"base": base, "lora": asdict(config)}, indent=1) + "\n"
    (folder / ADAPTER).write_text(text, encoding="utf-8")


def read_adapter_note(folder: Path) -> tuple[LoraConfig, str] | None:
    """(adapters, base) of a run's model folder; None where its checkpoints hold whole models."""
    path = folder / ADAPTER
    if not path.is_file():
        return None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return LoraConfig(**{**raw["lora"], "targets": tuple(raw["lora"]["targets"])}), raw["base"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: not a note on adapters ({error}). Take it from the run that wrote it."
        ) from error


def is_run(path: str | Path) -> bool:
    """Whether a path is a run directory, its `checkpoints`, or one checkpoint in there."""
    return _run_and_step(Path(path)) is not None


def _run_and_step(path: Path) -> tuple[Path, int | None] | None:
    path = path.absolute()
    if (path / CHECKPOINTS).is_dir() and (path / MODEL / "config.json").is_file():
        return path, None
    if path.name == CHECKPOINTS and (path.parent / MODEL / "config.json").is_file():
        return path.parent, None
    if path.parent.name == CHECKPOINTS and path.name.isdigit() and path.is_dir():
        return path.parent.parent, int(path.name)
    return None


def load_run(
    path: str | Path,
    *,
    step: int | None = None,
    dtype: Any = None,
    mesh: Mesh | None = None,
    rules: Rules | None = None,
) -> tuple[LoadedModel, int]:
    """Load a checkpoint of a training run, and say which step it is.

    path: run directory, or one of its checkpoints. The run's `model/` directory holds the configuration and tokenizer
    (`write_model_files`). Adapters are merged into their base model, which is loaded from where the run found it. step:
    default the best by the run's validation metric, else the last. dtype: default as stored. Raises CheckpointError
    where there is no such checkpoint, or it is damaged or does not fit the model.
    """
    found = _run_and_step(Path(path))
    if found is None:
        raise CheckpointError(
            f"{path}: not a run. A run directory holds {CHECKPOINTS}/ and {MODEL}/config.json; has it saved a step yet?"
        )
    run, of_path = found
    if step is not None and of_path is not None and step != of_path:
        raise InputError(f"{path}: is the checkpoint of step {of_path}, but step {step} is asked for. Give only one.")
    config = read_config(run / MODEL / "config.json")
    generation = GenerationDefaults.read(run / MODEL / "generation_config.json")
    chat = ChatTokenizer.load(run / MODEL, generation.end_ids or None)
    graph, shapes = abstract_model(config)
    adapted = read_adapter_note(run / MODEL)
    if adapted is not None:
        lora, base_shapes = adapted[0], shapes
        shapes = jax.eval_shape(lambda: make_adapters(base_shapes, lora))
    if mesh is not None:
        shardings = parameter_shardings(shapes, mesh, rules or rollout_rules(), config)
        shapes = jax.tree.map(
            lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), shapes, shardings
        )
    with TrainingCheckpoints(run / CHECKPOINTS, read_only=True) as checkpoints:
        steps = checkpoints.steps()
        if not steps:
            raise CheckpointError(f"{run / CHECKPOINTS}: there is no finished checkpoint yet.")
        chosen = of_path if step is None else step
        if chosen is None:
            best = checkpoints.best_step()
            chosen = steps[-1] if best is None else best
        form = checkpoints.stored_form(chosen, shapes) if chosen in steps else shapes
        params = checkpoints.restore(chosen, form).params
    if adapted is not None:
        lora, base = adapted
        params = merge_adapters(load(base, dtype="stored", mesh=mesh, rules=rules).params, params, lora)
    if dtype is not None:
        params = cast_parameters(params, dtype)
    return LoadedModel(config, graph, params, chat, generation, run / MODEL), chosen


def save(model: LoadedModel, directory: str | Path, *, shard_bytes: int = SHARD_BYTES) -> None:
    """Write a Hugging Face directory, whole or not at all: weights, config.json, tokenizer, generation and pixels.

    Recommendations and pixel limits that came with the model's own directory are kept as they are. All processes of a
    sharded model call this. Raises InputError where the directory holds something, RunError where the disk is full.
    """
    if jax.process_index() != 0:
        write_parameters(model.params, None, shard_bytes=shard_bytes)
        return
    with whole_directory(Path(directory)) as partial:
        types = {np.dtype(array.dtype) for array in jax.tree.leaves(model.params)}
        write_model_files(model.config, model.chat, partial, dtype=types.pop() if len(types) == 1 else None)
        if model.directory is not None:
            for name in KEPT_FILES:
                if (model.directory / name).is_file():
                    shutil.copyfile(model.directory / name, partial / name)
        write_parameters(model.params, partial, shard_bytes=shard_bytes)


def _directory_of(source: str | Path) -> Path:
    """The directory itself, or where the hub's files were put."""
    path = Path(source)
    if path.is_dir():
        return path
    if not (isinstance(source, str) and HUB_ID.fullmatch(source)):
        raise InputError(f"{source}: no such model directory. Give a directory with config.json, or a hub id like a/b.")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, allow_patterns=HUB_FILES))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"{source}: there is no such directory, and the Hugging Face hub did not give a model of this name "
            f"({type(error).__name__}: {reason}). Check the name and the connection, or download it elsewhere and give "
            "its directory."
        ) from error
