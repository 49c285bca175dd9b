"""Weights in Hugging Face form: safetensors to sharded arrays and back, bit for bit.

Both are driven by the model's parameter table. Names are those of the published checkpoints (`visual.…`,
`model.layers.…`, `lm_head.weight`); transformers 5 calls the same tensors `model.visual.…` and
`model.language_model.…`, and files with these names load too. Files are always written with the published names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Sharding, SingleDeviceSharding

from vrjax.checkpoints.tensor_files import (
    FLOATS,
    INDEX,
    SINGLE,
    StoredTensor,
    TensorToWrite,
    stored_tensors,
    write_tensors,
)
from vrjax.checkpoints.whole_directory import whole_directory
from vrjax.errors import CheckpointError
from vrjax.models.parameters import ParameterSpec, parameter_table
from vrjax.sharding import map_parameters

SHARD_BYTES = 5 * 10**9
LISTED = 10
COMPARED_BYTES = 64 * 2**20
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"

Progress = Callable[[int, int], None]


def published_name(name: str) -> str:
    """The published name of a tensor that transformers 5 may have named after its modules."""
    if name.startswith("model.visual."):
        return name.removeprefix("model.")
    if name.startswith("model.language_model."):
        return "model." + name.removeprefix("model.language_model.")
    return name


def load_parameters(
    directory: str | Path,
    params: nnx.State,
    *,
    dtype: Any = None,
    shardings: nnx.State | None = None,
    progress: Progress | None = None,
) -> nnx.State:
    """Read a model directory's safetensors into arrays.

    params: the model's (abstract) parameters. dtype: type to cast to; None keeps the stored one.
    shardings: where each parameter goes (`parameter_shardings`); None: all on this process's first device.
    progress: called with (bytes placed on this process's devices, bytes to place) after each piece.

    A process reads only the slices that its devices hold, one device's piece of one parameter at a time; beside the
    arrays themselves, the memory in use is that piece and one tensor.

    The head of a tied model may be in the file if it equals the embedding bit for bit. Rotary `inv_freq` buffers, which
    old files carry, are no parameters and are passed over. Raises CheckpointError naming every tensor that is missing,
    spare, misshapen or no floating-point number (the first ten of each).
    """
    directory = Path(directory)
    stored = _by_published_name(directory)
    table = parameter_table(params)
    _check(directory, stored, table)
    device = jax.local_devices()[0]
    places = shardings if shardings is not None else map_parameters(lambda *_: SingleDeviceSharding(device), params)
    place_of: dict[tuple[str, ...], Sharding] = {
        tuple(str(part) for part in path): weight.get_value() for path, weight in nnx.to_flat_state(places)
    }
    total = sum(_local_bytes(spec, place_of[spec.path], _dtype_of(spec, stored, dtype)) for spec in table)
    done = 0

    def placed(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    def load(spec: ParameterSpec, _: Any) -> jax.Array:
        tensors = [stored[name] for name in spec.hf_names()]
        return _place(spec, tensors, _dtype_of(spec, stored, dtype), place_of[spec.path], placed)

    return map_parameters(load, params)


def _by_published_name(directory: Path) -> dict[str, StoredTensor]:
    found: dict[str, StoredTensor] = {}
    for name, tensor in stored_tensors(directory).items():
        known = published_name(name)
        if known in found:
            raise CheckpointError(f"{tensor.file}: {name} and {found[known].name} are the same parameter. Remove one.")
        if not known.endswith("rotary_emb.inv_freq"):
            found[known] = tensor
    return found


def _check(directory: Path, stored: dict[str, StoredTensor], table: list[ParameterSpec]) -> None:
    wanted = {name: spec for spec in table for name in spec.hf_names()}
    faults: dict[str, list[str]] = {
        "missing": [name for name in wanted if name not in stored],
        "spare": [],
        "misshapen": [],
        "not floating point": [],
    }
    for name, tensor in stored.items():
        spec = wanted.get(name)
        where = f"{tensor.name} in {tensor.file.name}"
        if spec is None:
            if not (name == HEAD and EMBEDDING in stored and EMBEDDING in wanted):
                faults["spare"].append(where)
        elif tensor.shape != spec.hf_shape:
            faults["misshapen"].append(f"{where} is {list(tensor.shape)}, not {list(spec.hf_shape)}")
        elif tensor.kind not in FLOATS:
            faults["not floating point"].append(f"{where} is {tensor.kind}")
    lines = []
    for kind, names in faults.items():
        if names:
            more = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
            lines.append(f"  {kind} ({len(names)}): {', '.join(names[:LISTED])}{more}")
    if lines:
        hint = ""
        if faults["missing"] == [HEAD]:
            hint = "\nIf the head is the embedding, set tie_word_embeddings to true in config.json."
        raise CheckpointError(
            f"{directory}: the tensors do not fit config.json. Is it another model's?\n" + "\n".join(lines) + hint
        )
    if HEAD in stored and HEAD not in wanted and not _same(stored[HEAD], stored[EMBEDDING]):
        raise CheckpointError(
            f"{stored[HEAD].file}: config.json ties the head to the embedding, but {HEAD} differs from {EMBEDDING}. "
            "Set tie_word_embeddings to false, or remove the tensor."
        )


def _same(first: StoredTensor, second: StoredTensor) -> bool:
    """Whether two matrices hold the same bytes, compared a few rows at a time."""
    if (first.shape, first.kind) != (second.shape, second.kind) or first.kind not in FLOATS:
        return False
    rows = max(1, COMPARED_BYTES // max(1, first.shape[1] * FLOATS[first.kind].itemsize))
    for start in range(0, first.shape[0], rows):
        part = (slice(start, min(start + rows, first.shape[0])),)
        if first.read(part).tobytes() != second.read(part).tobytes():
            return False
    return True


def _dtype_of(spec: ParameterSpec, stored: dict[str, StoredTensor], dtype: Any) -> np.dtype:
    """The type asked for; else the stored one, the widest where layers differ."""
    if dtype is not None:
        return np.dtype(dtype)
    kinds = {stored[name].kind for name in spec.hf_names()}
    return np.dtype(jnp.result_type(*(FLOATS[kind] for kind in kinds)))


Bounds = tuple[tuple[int, int], ...]


def _pieces(spec: ParameterSpec, place: Sharding) -> dict[Bounds, list[Any]]:
    """The different pieces of a parameter that this process holds, each with its devices."""
    pieces: dict[Bounds, list[Any]] = {}
    for device, index in place.addressable_devices_indices_map(spec.shape).items():
        full = index or ()
        parts = [*full, *(slice(None),) * (len(spec.shape) - len(full))]
        bounds = tuple(part.indices(size)[:2] for part, size in zip(parts, spec.shape, strict=True))
        pieces.setdefault(bounds, []).append(device)
    return pieces


def _sizes(bounds: Bounds) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in bounds)


def _local_bytes(spec: ParameterSpec, place: Sharding, dtype: np.dtype) -> int:
    pieces = _pieces(spec, place).items()
    return sum(int(np.prod(_sizes(bounds))) * dtype.itemsize * len(devices) for bounds, devices in pieces)


def _place(
    spec: ParameterSpec,
    tensors: list[StoredTensor],
    dtype: np.dtype,
    place: Sharding,
    placed: Callable[[int], None],
) -> jax.Array:
    arrays = []
    for bounds, devices in _pieces(spec, place).items():
        piece = _read_piece(spec, tensors, bounds, dtype)
        for device in devices:
            arrays.append(jax.block_until_ready(jax.device_put(piece, device)))
            placed(piece.nbytes)
        del piece
    return jax.make_array_from_single_device_arrays(spec.shape, place, arrays)


def _read_piece(spec: ParameterSpec, tensors: list[StoredTensor], bounds: Bounds, dtype: np.dtype) -> np.ndarray:
    piece = np.empty(_sizes(bounds), dtype)
    if spec.layers is None:
        piece[...] = _read_part(tensors[0], spec.shape, bounds)
        return piece
    for row, layer in enumerate(range(*bounds[0])):
        piece[row] = _read_part(tensors[layer], spec.shape[1:], bounds[1:])
    return piece


def _read_part(tensor: StoredTensor, shape: tuple[int, ...], bounds: Bounds) -> np.ndarray:
    """Read `bounds` of a tensor that the model sees as `shape`; the first dimension is the same in both."""
    index = tuple(slice(start, stop) for start, stop in bounds)
    if tensor.shape == shape:
        return tensor.read(index)
    rows = tensor.read(index[:1])
    return rows.reshape(len(rows), *shape[1:])[(slice(None), *index[1:])]


def save_parameters(params: nnx.State, directory: str | Path, *, shard_bytes: int = SHARD_BYTES) -> None:
    """Write parameters as safetensors into a new directory, whole or not at all.

    shard_bytes: largest file; above it there are several and an index. Arrays may be sharded, also over processes: all
    of them call this, the first writes. Raises InputError where the directory exists with something in it, RunError
    where the disk is full.
    """
    if jax.process_index() != 0:
        write_parameters(params, None, shard_bytes=shard_bytes)
        return
    with whole_directory(Path(directory)) as partial:
        write_parameters(params, partial, shard_bytes=shard_bytes)


def write_parameters(params: nnx.State, directory: Path | None, *, shard_bytes: int = SHARD_BYTES) -> None:
    """Like `save_parameters`, into a directory that exists already (None: only take part). Raises OSError."""
    arrays: dict[tuple[str, ...], jax.Array] = {}
    map_parameters(lambda spec, array: arrays.setdefault(spec.path, array), params)
    tensors = [tensor for spec in parameter_table(params) for tensor in _to_write(spec, arrays[spec.path])]
    files: list[list[TensorToWrite]] = [[]]
    for tensor in tensors:
        if files[-1] and sum(other.bytes for other in files[-1]) + tensor.bytes > shard_bytes:
            files.append([])
        files[-1].append(tensor)
    if len(files) == 1:
        write_tensors(directory / SINGLE if directory else None, files[0])
        return
    weight_map = {}
    for number, group in enumerate(files, 1):
        name = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        write_tensors(directory / name if directory else None, group)
        weight_map.update({tensor.name: name for tensor in group})
    if directory is not None:
        total = sum(tensor.bytes for tensor in tensors)
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _to_write(spec: ParameterSpec, array: jax.Array) -> list[TensorToWrite]:
    def reader(layer: int | None) -> Callable[[], np.ndarray]:
        return lambda: _on_host(array if layer is None else array[layer]).reshape(spec.hf_shape)

    layers = [None] if spec.layers is None else range(spec.layers)
    return [
        TensorToWrite(name, spec.hf_shape, np.dtype(array.dtype), reader(layer))
        for name, layer in zip(spec.hf_names(), layers, strict=True)
    ]


def _on_host(array: jax.Array) -> np.ndarray:
    if array.is_fully_addressable:
        return np.asarray(array)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array, tiled=True))
