"""Llama 3 and checkpoints of its kind (SmolLM2) in JAX."""

from vrjax.models.llama.config import LlamaConfig
from vrjax.models.llama.model import Llama

__all__ = ["Llama", "LlamaConfig"]
