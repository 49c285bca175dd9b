"""How alike two descriptions are, in [0, 1].

`SentenceSimilarity` is the paper's (BGE-M3 there; any sentence-transformers model by name or path). `TokenSimilarity`
needs no model. Neither ever stands in for the other, and each carries a `name` that goes into every output.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from vrjax.errors import InputError
from vrjax.evidence.answer import normalised_words, words_f1
from vrjax.evidence.embedding_cache import EmbeddingCache

PAPER_MODEL = "BAAI/bge-m3"
_SAMPLED_BLOCKS, _BLOCK_BYTES = 64, 4096
_HUB_WAIT_S = 10.0


class Similarity(Protocol):
    """What the metrics ask of a similarity. An empty description is like nothing: 0."""

    @property
    def name(self) -> str:
        """What outputs call it."""
        ...

    def prepare(self, texts: Iterable[str]) -> None:
        """Announce texts, so that their embeddings are computed in batches. Optional: results do not depend on it."""
        ...

    def pairs(
        self, references: Sequence[str], predictions: Sequence[str]
    ) -> Float[np.ndarray, "references predictions"]:
        """The similarity in [0, 1] of each reference with each prediction."""
        ...


class TokenSimilarity:
    """F1 of the normalised words of two texts. Knows no synonyms: its values are not comparable with the paper's."""

    name = "tokens"

    def prepare(self, texts: Iterable[str]) -> None:
        """Nothing to prepare."""

    def pairs(
        self, references: Sequence[str], predictions: Sequence[str]
    ) -> Float[np.ndarray, "references predictions"]:
        """Token F1 of each pair; 0 where either text has no words."""
        rows = [normalised_words(text) for text in references]
        columns = [normalised_words(text) for text in predictions]
        matrix = np.zeros((len(rows), len(columns)))
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                matrix[i, j] = words_f1(row, column) if row and column else 0.0
        return matrix


class SentenceSimilarity:
    """Dot product of normalised sentence embeddings, clipped to [0, 1].

    The model is loaded when the first text is met that is not in the cache. Texts are stripped first.

    Args:
        model: a directory, or a Hugging Face id; weights must be safetensors.
        cache_dir: where `embeddings.sqlite` lies; None keeps embeddings in memory only.
        batch_size: texts per forward pass.
        device: torch device; None lets sentence-transformers choose.

    Raises:
        InputError: sentence-transformers is not installed, or the model cannot be had.
    """

    def __init__(
        self,
        model: str | Path = PAPER_MODEL,
        cache_dir: str | Path | None = None,
        batch_size: int = 64,
        device: str | None = None,
    ) -> None:
        self._model_name = str(model)
        self._cache_dir = None if cache_dir is None else Path(cache_dir)
        self._batch_size = batch_size
        self._device = device
        self._encoder: Any = None
        self._known_identity: str | None = None
        self._vectors: dict[str, np.ndarray] = {}

    @property
    def name(self) -> str:
        """`id@commit` of a hub model, or the name of a directory with the start of its fingerprint."""
        identity = self._identity()
        if identity is not None and Path(self._model_name).is_dir():
            return f"{Path(self._model_name).resolve().name}@{identity[:12]}"
        return identity or self._model_name

    def prepare(self, texts: Iterable[str]) -> None:
        """Embed the texts that are neither in memory nor in the cache, in batches."""
        wanted = {_clean(text) for text in texts} - self._vectors.keys() - {""}
        if not wanted:
            return
        cache = self._cache()
        if cache is not None:
            self._vectors.update(cache.read(wanted))
        # Longest first: a batch then pads little, and running out of memory shows at once.
        missing = sorted(wanted - self._vectors.keys(), key=lambda text: (-len(text), text))
        if not missing:
            return
        embedded = self._load().encode(
            missing, batch_size=self._batch_size, normalize_embeddings=True, show_progress_bar=False
        )
        fresh = dict(zip(missing, np.asarray(embedded, np.float32), strict=True))
        self._vectors.update(fresh)
        cache = self._cache()  # asked again: the revision may be known only now
        if cache is not None:
            cache.write(fresh)

    def pairs(
        self, references: Sequence[str], predictions: Sequence[str]
    ) -> Float[np.ndarray, "references predictions"]:
        """Clipped dot products; 0 where either text is empty."""
        self.prepare([*references, *predictions])
        matrix = np.zeros((len(references), len(predictions)))
        rows = [self._vectors.get(_clean(text)) for text in references]
        columns = [self._vectors.get(_clean(text)) for text in predictions]
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                if row is not None and column is not None:
                    matrix[i, j] = min(max(float(row @ column), 0.0), 1.0)
        return matrix

    def _cache(self) -> EmbeddingCache | None:
        """The cache of this very model; None without `cache_dir`, or while it is unknown which revision will load."""
        identity = self._identity()
        if self._cache_dir is None or identity is None:
            return None
        return EmbeddingCache(self._cache_dir / "embeddings.sqlite", identity)

    def _identity(self) -> str | None:
        if self._known_identity is None:
            path = Path(self._model_name)
            self._known_identity = fingerprint(path) if path.is_dir() else _local_revision(self._model_name)
        return self._known_identity

    def _load(self) -> Any:
        if self._encoder is None:
            try:
                from sentence_transformers import SentenceTransformer
            except ImportError as error:
                raise InputError(
                    "sentence-transformers is not installed. Install vrjax[similarity], or compare words instead "
                    "(--similarity tokens)."
                ) from error
            try:
                self._encoder = self._first_loadable(SentenceTransformer)
            except Exception as error:  # the hub, transformers and torch raise many kinds
                raise InputError(
                    f"the sentence model {self._model_name!r} cannot be loaded ({_first_line(error)}). Give the "
                    "directory of a sentence-transformers model with safetensors weights (--similarity DIR), connect "
                    "to the hub, or compare words instead (--similarity tokens)."
                ) from error
        return self._encoder

    def _first_loadable(self, encoder_class: Any) -> Any:
        """The model from this machine, else from the hub."""

        def load(local_files_only: bool) -> Any:
            return encoder_class(
                self._model_name,
                device=self._device,
                local_files_only=local_files_only,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},  # weights are never unpickled
            )

        if Path(self._model_name).is_dir():
            return load(local_files_only=True)
        if self._identity() is not None:
            try:
                return load(local_files_only=True)
            except OSError:  # only part of the model is here
                pass
        from huggingface_hub import model_info

        # One question first: without a network the loader itself goes on trying for more than a minute.
        model_info(self._model_name, timeout=_HUB_WAIT_S)
        encoder = load(local_files_only=False)
        self._known_identity = None  # the download may have brought another revision
        return encoder


def _clean(text: str) -> str:
    # Lone surrogates, which JSON can carry, are no text to a tokenizer.
    return text.strip().encode("utf-8", "replace").decode("utf-8")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _local_revision(model: str) -> str | None:
    """`id@commit` of a hub model that is in the local hub cache, else None."""
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "config.json")
    except (ImportError, ValueError):  # not a hub id
        return None
    return f"{model}@{Path(found).parent.name}" if isinstance(found, str) else None


def fingerprint(directory: Path) -> str:
    """A digest of a model directory: small files whole, large ones by size and evenly spaced blocks.

    Two fine-tuned models differ nearly everywhere, so that samples tell them apart without reading gigabytes.
    """
    digest = hashlib.sha256()
    for path in sorted(
        p for p in directory.rglob("*") if p.is_file() and p.suffix in {".json", ".safetensors", ".txt"}
    ):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(directory).as_posix()}:{size}\n".encode())
        with path.open("rb") as file:
            if size <= _SAMPLED_BLOCKS * _BLOCK_BYTES:
                digest.update(file.read())
            else:
                for block in range(_SAMPLED_BLOCKS):
                    file.seek(block * (size - _BLOCK_BYTES) // (_SAMPLED_BLOCKS - 1))
                    digest.update(file.read(_BLOCK_BYTES))
    return digest.hexdigest()


def make_similarity(name: str, cache_dir: str | Path | None = None) -> Similarity:
    """`tokens`, or a sentence model by directory or Hugging Face id."""
    return TokenSimilarity() if name == "tokens" else SentenceSimilarity(name, cache_dir)
