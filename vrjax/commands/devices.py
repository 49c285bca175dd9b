"""`--devices.…`: which devices of this machine hold a model that answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vrjax.errors import InputError

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from vrjax.loading import LoadedModel


@dataclass(frozen=True)
class Devices:
    """data x tensor devices of this machine, from the first on."""

    tensor: int = 1
    """Devices that hold one copy of the model together, for a model that one cannot hold."""
    data: int = 1
    """Copies of the model; the requests of a batch are dealt out among them."""

    def mesh(self) -> Mesh | None:
        """The devices as a mesh; None for one alone. Raises InputError where there are fewer."""
        count = self.data * self.tensor
        if self.data < 1 or self.tensor < 1:
            raise InputError(f"--devices.data {self.data} --devices.tensor {self.tensor}: give whole numbers above 0.")
        if count == 1:
            return None
        import jax

        from vrjax.sharding import make_mesh

        here = jax.local_devices()
        if count > len(here):
            raise InputError(
                f"--devices.data {self.data} --devices.tensor {self.tensor} ask for {count} devices, but there are "
                f"{len(here)} here ({here[0].platform}). Lower them."
            )
        return make_mesh(data=self.data, fsdp=1, tensor=self.tensor, devices=here[:count])

    def load(self, source: str | Path) -> LoadedModel:
        """A model directory, hub id, run or checkpoint of a run, on these devices."""
        return self.load_with_step(source)[0]

    def load_with_step(self, source: str | Path) -> tuple[LoadedModel, int | None]:
        """The same, and which step of a run it is (None: no run)."""
        from vrjax.loading import is_run, load, load_run

        mesh = self.mesh()
        return load_run(source, mesh=mesh) if is_run(source) else (load(source, mesh=mesh), None)
