"""A configuration's model as shapes: its sizes are read, its weights are not."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from vrjax.errors import InputError
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.loading import GenerationDefaults, LoadedModel, abstract_model
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig
from vrjax.models.qwen2_5_vl.published import published_config
from vrjax.models.registry import read_config
from vrjax.sharding import parameter_shardings, update_rules
from vrjax.training.config import FreshModel, ModelSource


def model_config(source: ModelSource) -> Qwen2_5VLConfig:
    """Sizes of the model: of the configuration itself, of a directory, or of a published model by its hub id.

    Raises InputError where they are not at hand.
    """
    if isinstance(source, FreshModel):
        return source.config
    directory = Path(source.path)
    config = read_config(directory / "config.json") if directory.is_dir() else published_config(str(source.path))
    if config is None:
        raise InputError(
            f"{source.path}: there is no such directory, and the sizes of a model of this name are not known. Give a "
            "directory with its config.json; weights are not needed."
        )
    if not isinstance(config, Qwen2_5VLConfig):
        raise InputError(f"{source.path}: only Qwen2.5-VL models are trained, not {type(config).__name__}.")
    return config


def model_shapes(source: ModelSource, mesh: Mesh) -> LoadedModel:
    """What `training.sources.open_model` gives, with shapes in place of weights: float32, by the update's rules.

    Where no tokenizer is at hand one stands in that has as many tokens as the model: no shape depends on more.
    Raises InputError where the mesh does not fit the model, with one table of all parameters that it does not divide.
    """
    config = model_config(source)
    graph, shapes = abstract_model(config)
    shardings = parameter_shardings(shapes, mesh, update_rules(), config)
    params = jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, jnp.float32, sharding=place), shapes, shardings
    )
    folder = source.tokenizer if isinstance(source, FreshModel) else Path(source.path)
    defaults = GenerationDefaults.read(Path(folder) / "generation_config.json")
    if (Path(folder) / "tokenizer.json").is_file():
        chat = ChatTokenizer.load(folder, defaults.end_ids or None)
    else:
        chat = ChatTokenizer(range(config.text.vocabulary), (0,), 0, None)
    return LoadedModel(config, graph, params, chat, defaults)
