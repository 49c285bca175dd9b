"""Sentence embeddings on disk, found again by text and model.

One SQLite file serves any number of models and processes: each write is one transaction, so that a killed process
leaves nothing half written, and writers wait for each other.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from vrjax.errors import InputError

_SCHEMA = "CREATE TABLE IF NOT EXISTS embeddings (model TEXT, text BLOB, vector BLOB, PRIMARY KEY (model, text))"
_KEYS_PER_QUERY = 500  # below SQLite's limit on bound values
_WAIT_S = 60.0


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class EmbeddingCache:
    """Embeddings of one model in the SQLite file `path` (made on first use).

    A connection is opened per call, so that an object may cross a fork. Raises InputError naming the file where it is
    damaged or cannot be written.
    """

    def __init__(self, path: Path, model: str) -> None:
        self.path = path
        self.model = model

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=_WAIT_S)
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{self.path}: the embedding cache cannot be opened ({error}). Choose another.") from error
        try:
            with connection:  # one transaction
                connection.execute(_SCHEMA)
                yield connection
        except sqlite3.Error as error:
            raise InputError(
                f"{self.path}: the embedding cache cannot be used ({error}). Delete the file, it will be made again."
            ) from error
        finally:
            connection.close()

    def read(self, texts: Iterable[str]) -> dict[str, Float32[np.ndarray, " width"]]:
        """The embeddings of those texts that are in the cache."""
        by_key = {_key(text): text for text in texts}
        keys = list(by_key)
        found: dict[str, np.ndarray] = {}
        with self._connection() as connection:
            for begin in range(0, len(keys), _KEYS_PER_QUERY):
                chunk = keys[begin : begin + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(chunk))
                query = f"SELECT text, vector FROM embeddings WHERE model = ? AND text IN ({marks})"
                for key, vector in connection.execute(query, (self.model, *chunk)):
                    found[by_key[key]] = np.frombuffer(vector, dtype="<f4")
        return found

    def write(self, vectors: Mapping[str, Float32[np.ndarray, " width"]]) -> None:
        """Add embeddings; one that is there already stays as it is."""
        rows = [(self.model, _key(text), np.asarray(vector, "<f4").tobytes()) for text, vector in vectors.items()]
        with self._connection() as connection:
            connection.executemany("INSERT OR IGNORE INTO embeddings VALUES (?, ?, ?)", rows)
