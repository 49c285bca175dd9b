"""Video language models that show their evidence: trained, run and measured in JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrjax.loading import LoadedModel, load, save

__all__ = ["LoadedModel", "load", "save"]


def __getattr__(name: str) -> Any:
    """Import what needs JAX only when it is asked for: `import vrjax` stays quick."""
    if name in __all__:
        from vrjax import loading

        return getattr(loading, name)
    raise AttributeError(f"module 'vrjax' has no attribute {name!r}")
