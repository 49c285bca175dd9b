"""A batch as shapes: what programs are compiled from before there is a batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding

from vrjax.loading import LoadedModel
from vrjax.training.buckets import RowSize
from vrjax.training.config import SftConfig
from vrjax.training.placement import ROWS
from vrjax.training.rows import Rows, empty_text, empty_vision


def abstract_rows(config: SftConfig, model: LoadedModel, mesh: Mesh, bucket: RowSize) -> Rows:
    """A batch of a bucket as shapes, made by the functions that pad rows without a question."""
    place = NamedSharding(mesh, ROWS)

    def rows_of(row: Any) -> Any:
        def batch(array: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((config.batch.videos, *array.shape), jnp.dtype(array.dtype), sharding=place)

        return jax.tree.map(batch, row)

    return Rows(rows_of(empty_text(bucket, model.chat.pad_id)), rows_of(empty_vision(model.config.vision, bucket)))
