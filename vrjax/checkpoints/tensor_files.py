"""The safetensors files of one model directory: what is in them, slices of it, and writing them in a stream.

The library's own writer wants all tensors of a file in memory at once; `write_tensors` holds one at a time.
Format: https://github.com/huggingface/safetensors#format (8 bytes of header length, JSON header, data).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from vrjax.errors import CheckpointError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
FLOATS: dict[str, Any] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file. kind: safetensors' name of its type (F32, BF16, I64, …)."""

    name: str
    file: Path
    shape: tuple[int, ...]
    kind: str

    def read(self, index: tuple[slice, ...]) -> np.ndarray:
        """Read a slice. The file is mapped for this one read only, so that its pages do not pile up in memory."""
        try:
            with safe_open(self.file, "numpy") as opened:
                return opened.get_slice(self.name)[index] if self.shape else opened.get_tensor(self.name)
        except (OSError, SafetensorError) as error:
            raise _unreadable(self.file, error) from error


def _unreadable(file: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{file}: not a whole safetensors file ({error}). It is cut off or damaged: copy or download it again."
    )


def stored_tensors(directory: str | Path) -> dict[str, StoredTensor]:
    """All tensors of a model directory by name; only headers are read.

    Raises CheckpointError where there are no safetensors files (pickled weights are refused), where the index and the
    files disagree, or where a file is cut off.
    """
    directory = Path(directory)
    single, index = directory / SINGLE, directory / INDEX
    if single.is_file():
        return {tensor.name: tensor for tensor in _tensors_of(single)}
    if not index.is_file():
        raise _no_weights(directory)
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = sorted(set(weight_map.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index}: not a safetensors index ({error}). Copy the file again.") from error
    outside = [name for name in files if Path(name).name != name]
    if outside:
        raise CheckpointError(f"{index}: names files outside of its directory: {', '.join(outside[:10])}.")
    absent = [name for name in files if not (directory / name).is_file()]
    if absent:
        raise CheckpointError(f"{index}: names files that are not there: {', '.join(absent[:10])}. Copy them too.")
    found = {}
    for name in files:
        for tensor in _tensors_of(directory / name):
            if weight_map.get(tensor.name) == name:
                found[tensor.name] = tensor
            elif tensor.name not in weight_map:
                raise CheckpointError(f"{directory / name}: holds {tensor.name}, which {INDEX} does not name.")
    lost = sorted(set(weight_map) - set(found))
    if lost:
        raise CheckpointError(f"{index}: names tensors that are not in their files: {', '.join(lost[:10])}.")
    return found


def _tensors_of(file: Path) -> list[StoredTensor]:
    try:
        with safe_open(file, "numpy") as opened:
            views = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (no mapping)
            return [StoredTensor(name, file, tuple(view.get_shape()), view.get_dtype()) for name, view in views.items()]
    except (OSError, SafetensorError) as error:
        raise _unreadable(file, error) from error


def _no_weights(directory: Path) -> CheckpointError:
    if not directory.is_dir():
        return CheckpointError(f"{directory}: no such directory. Give the directory that holds config.json.")
    pickles = sorted(path.name for pattern in PICKLES for path in directory.glob(pattern))
    if pickles:
        return CheckpointError(
            f"{directory}: the weights are pickled ({', '.join(pickles[:3])}), and loading a pickle can run any "
            "program. Only safetensors are read: convert them where you trust the file, with save_pretrained."
        )
    return CheckpointError(f"{directory}: holds neither {SINGLE} nor {INDEX}. Give the directory with the weights.")


@dataclass(frozen=True)
class TensorToWrite:
    """A tensor's name and form; `read` is called when its turn comes."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    read: Any

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def write_tensors(file: Path | None, tensors: Iterable[TensorToWrite]) -> None:
    """Write one safetensors file, one tensor in memory at a time, down to the disk.

    With `file` None the tensors are read and not written: what every process but the first does where reading one
    takes all of them. Raises OSError.
    """
    ordered = sorted(tensors, key=lambda tensor: -tensor.dtype.itemsize)  # wide types first: all stay aligned
    if file is None:
        for tensor in ordered:
            tensor.read()
        return
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # transformers asks for this entry
    start = 0
    for tensor in ordered:
        kind = next(kind for kind, dtype in FLOATS.items() if dtype == tensor.dtype)
        header[tensor.name] = {
            "dtype": kind,
            "shape": list(tensor.shape),
            "data_offsets": [start, start + tensor.bytes],
        }
        start += tensor.bytes
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with open(file, "wb") as out:
        out.write(len(encoded).to_bytes(8, "little") + encoded)
        for tensor in ordered:
            value = np.ascontiguousarray(tensor.read())
            if value.nbytes != tensor.bytes or value.dtype != tensor.dtype:
                raise ValueError(f"{tensor.name}: {value.dtype} {value.shape} is not the declared form")
            out.write(value.reshape(-1).view(np.uint8).data)
        out.flush()
        os.fsync(out.fileno())
