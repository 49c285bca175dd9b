"""Everything a resumed run needs, in one place: parameters, optimiser state, and a JSON dictionary for the rest.

Over Orbax: saved in the background, committed by a rename (or a commit marker on object stores), readable on another
mesh. Arrays are stored under the names of their places in the tree, so what is read back is asked for by a tree of the
same form, and a misfit is told apart from damage.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import jax
import orbax.checkpoint as ocp
from jax.sharding import SingleDeviceSharding
from orbax.checkpoint import checkpoint_managers

from vrjax.checkpoints.digests import digests
from vrjax.checkpoints.whole_directory import is_out_of_room, out_of_room
from vrjax.errors import CheckpointError, InputError

LISTED = 10
T = TypeVar("T")


@dataclass(frozen=True)
class Restored:
    """What `TrainingCheckpoints` gives back.

    optimizer_state: None where it was not asked for. extra: the dictionary that was saved. metrics: likewise.
    notes: a sentence for each newer checkpoint that could not be read; empty where all is well.
    """

    step: int
    params: Any
    optimizer_state: Any
    extra: dict[str, Any]
    metrics: dict[str, float]
    notes: tuple[str, ...] = ()


class TrainingCheckpoints:
    """The checkpoints of one run, `directory/STEP`: the last few and the best few are kept.

    keep_last, keep_best: how many; a checkpoint can be both. metric: name in the saved metrics that ranks them (None:
    no best). mode: whether high or low is better. A checkpoint without the metric, or with NaN, ranks last.
    read_only: for export; nothing is deleted or moved.

    `save` returns once the arrays are copied off the devices; writing goes on in the background. An error there (the
    disk is full) is raised by the next `save`, `wait` or `close`, and its half-written directory is removed.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        keep_last: int = 2,
        keep_best: int = 1,
        metric: str | None = None,
        mode: Literal["max", "min"] = "max",
        read_only: bool = False,
    ) -> None:
        if keep_last < 1:
            raise InputError(f"keep_last is {keep_last}, but a run needs its last checkpoint to resume. Use 1 or more.")
        self.directory = Path(directory).absolute()
        self.metric, self.mode, self.read_only = metric, mode, read_only
        if read_only and not self.directory.is_dir():
            raise CheckpointError(f"{self.directory}: no such directory. Give a run that has saved a checkpoint.")
        policies: list[Any] = [checkpoint_managers.LatestN(keep_last)]
        if metric is not None and keep_best > 0:
            policies.append(
                checkpoint_managers.BestN(get_metric_fn=self._rank, n=keep_best, keep_checkpoints_without_metrics=False)
            )
        self._options = ocp.CheckpointManagerOptions(
            create=not read_only,
            read_only=read_only,
            cleanup_tmp_directories=not read_only,
            preservation_policy=checkpoint_managers.AnyPreservationPolicy(policies),
        )
        self._manager = self._guard(self._open)

    def _open(self) -> ocp.CheckpointManager:
        handlers = {
            "params": ocp.StandardCheckpointHandler(),
            "optimizer": ocp.StandardCheckpointHandler(),
            "note": ocp.JsonCheckpointHandler(),
        }
        return ocp.CheckpointManager(self.directory, options=self._options, item_handlers=handlers)

    def _rank(self, metrics: Mapping[str, float]) -> float:
        return _rank(metrics, self.metric, self.mode)

    def save(
        self,
        step: int,
        params: Any,
        optimizer_state: Any = None,
        extra: Mapping[str, Any] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Save a step. extra: anything JSON can hold (iterator state, seeds, best metric, configuration).

        Raises RunError where the disk is full, InputError where `extra` is not JSON.
        """
        try:
            note = json.loads(json.dumps({"extra": dict(extra or {}), "metrics": dict(metrics or {})}))
        except (TypeError, ValueError) as error:
            raise InputError(f"step {step}: what is saved beside the arrays is not JSON ({error}).") from error
        trees = {"params": _by_place(params), "optimizer": _by_place(optimizer_state)}
        note["digests"] = {name: digests(arrays) for name, arrays in trees.items()}
        note["best_by"] = {"metric": self.metric, "mode": self.mode}
        items: dict[str, Any] = {"note": ocp.args.JsonSave(note)}
        items |= {name: ocp.args.StandardSave(arrays) for name, arrays in trees.items() if arrays}
        args = ocp.args.Composite(**items)
        self._guard(lambda: self._manager.save(step, args=args, metrics=dict(metrics or {}), force=True))

    def steps(self) -> list[int]:
        """Committed steps, ascending."""
        return sorted(self._manager.all_steps())

    def best_step(self) -> int | None:
        """The step with the best metric (of equals the later), or None where none has it.

        Ranked by `metric`; where that is None, by the metric that the checkpoints were saved under.
        """
        ranked = []
        for step in self.steps():
            try:
                note = self._note(step)
                best_by = note["best_by"] if self.metric is None else {"metric": self.metric, "mode": self.mode}
                rank = _rank(note["metrics"], **best_by)
            except Exception:  # a damaged note; `restore` names it where that step is asked for
                continue
            if rank > -math.inf:
                ranked.append((rank, step))
        return max(ranked)[1] if ranked else None

    def stored_form(self, step: int, params: Any) -> Any:
        """`params` as ShapeDtypeStruct with the types that the step was saved in, for those who do not know them.

        Places that the step does not have keep their type; `restore` then names them.
        """
        stored = self._manager.item_metadata(step)["params"]
        types = {} if stored is None else {place: leaf.dtype for place, leaf in stored.tree.items()}
        named = _by_place(jax.tree.map(_abstract, params))
        leaves = [
            jax.ShapeDtypeStruct(leaf.shape, types.get(place, leaf.dtype), sharding=leaf.sharding)
            for place, leaf in named.items()
        ]
        return jax.tree.unflatten(jax.tree.structure(params), leaves)

    def restore(self, step: int, params: Any, optimizer_state: Any = None) -> Restored:
        """Read one step. params, optimizer_state: trees of arrays or ShapeDtypeStruct (with shardings, which may differ
        from the saved ones); None is not read.

        Raises CheckpointError where the step is not there, is damaged, or does not fit the trees.
        """
        if step not in self.steps():
            known = ", ".join(str(known) for known in self.steps()) or "none"
            raise CheckpointError(f"{self.directory}: there is no checkpoint of step {step}. Steps there: {known}.")
        try:
            return self._read(step, params, optimizer_state)
        except (_Misfit, MemoryError) as error:
            raise (CheckpointError(str(error)) if isinstance(error, _Misfit) else error) from error
        except Exception as error:
            raise CheckpointError(self._damage(step, error)) from error

    def latest(self, params: Any, optimizer_state: Any = None) -> Restored | None:
        """Read the last step that can be read, None where the run has saved nothing yet.

        A damaged checkpoint is passed over for the one before, moved aside to `STEP.damaged` (unless read_only), and
        named in `notes`. Raises CheckpointError where all are damaged, or where one is whole but of another model or
        optimiser.
        """
        notes: list[str] = []
        for step in reversed(self.steps()):
            try:
                restored = self._read(step, params, optimizer_state)
            except _Misfit as error:
                raise CheckpointError(str(error)) from error
            except MemoryError:
                raise
            except Exception as error:
                notes.append(self._damage(step, error) + " The one before it is used.")
                continue
            self._move_aside(later_than=step)
            return replace(restored, notes=tuple(notes))
        if notes:
            listed = "\n  ".join(note.removesuffix(" The one before it is used.") for note in notes)
            raise CheckpointError(f"{self.directory}: no checkpoint can be read.\n  {listed}")
        return None

    def wait(self) -> None:
        """Wait until all saves are on disk. Raises RunError where the disk is full."""
        self._guard(self._manager.wait_until_finished)

    def close(self) -> None:
        """Wait, then release. Raises RunError where the disk is full."""
        try:
            self.wait()
        finally:
            self._manager.close()

    def __enter__(self) -> TrainingCheckpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note(self, step: int) -> dict[str, Any]:
        return self._manager.restore(step, args=ocp.args.Composite(note=ocp.args.JsonRestore()))["note"]

    def _read(self, step: int, params: Any, optimizer_state: Any) -> Restored:
        asked = {"params": params, "optimizer": optimizer_state}
        asked = {name: tree for name, tree in asked.items() if jax.tree.leaves(tree)}
        stored = self._manager.item_metadata(step)
        items: dict[str, Any] = {"note": ocp.args.JsonRestore()}
        for name, tree in asked.items():
            wanted = _by_place(jax.tree.map(_abstract, tree))
            if stored[name] is None:
                raise FileNotFoundError(f"the {name} arrays are not in it")
            _check_fit(f"{self.directory / str(step)}: {name}", wanted, stored[name].tree)
            items[name] = ocp.args.StandardRestore(wanted)
        read = self._manager.restore(step, args=ocp.args.Composite(**items))
        note = read["note"]
        for name in asked:
            now, then = digests(read[name]), note["digests"][name]
            changed = [place for place in now if now[place] != then[place]]
            if changed:
                raise ValueError(f"the values of {', '.join(changed[:LISTED])} are not those that were saved")
        trees = {
            name: jax.tree.unflatten(jax.tree.structure(tree), [read[name][place] for place in _by_place(tree)])
            for name, tree in asked.items()
        }
        return Restored(
            step, trees.get("params", params), trees.get("optimizer", optimizer_state), note["extra"], note["metrics"]
        )

    def _damage(self, step: int, error: Exception) -> str:
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        return f"{self.directory / str(step)}: the checkpoint is damaged ({type(error).__name__}: {reason})."

    def _move_aside(self, later_than: int) -> None:
        """Rename damaged steps, so that their numbers are free for the resumed run."""
        damaged = [step for step in self.steps() if step > later_than]
        if not damaged or self.read_only:
            return
        if jax.process_index() == 0:
            for step in damaged:
                aside = self.directory / f"{step}.damaged"
                shutil.rmtree(aside, ignore_errors=True)
                (self.directory / str(step)).rename(aside)
        if jax.process_count() > 1:
            from jax.experimental import multihost_utils

            multihost_utils.sync_global_devices("damaged checkpoints moved aside")
        self._manager.reload()

    def _guard(self, action: Callable[[], T]) -> T:
        """Run an action of Orbax; a full disk becomes a RunError, and what it left half-written is removed."""
        try:
            return action()
        except Exception as error:
            if not is_out_of_room(error):
                raise
            if jax.process_index() == 0 and not self.read_only:
                for partial in self.directory.glob("*.orbax-checkpoint-tmp*"):
                    shutil.rmtree(partial, ignore_errors=True)
            raise out_of_room(self.directory, "The checkpoints before this one are whole.") from error


def _rank(metrics: Mapping[str, float], metric: str | None, mode: str) -> float:
    """Greater is better; minus infinity where the metric is not there or NaN."""
    value = float(metrics.get(metric or "", math.nan))
    if math.isnan(value):
        return -math.inf
    return value if mode == "max" else -value


class _Misfit(Exception):
    """The checkpoint is whole but of another form than asked for."""


def _by_place(tree: Any) -> dict[str, Any]:
    """Leaves by the names of their places; a checkpoint then depends on no class."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="|"): leaf for path, leaf in leaves}


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    place = getattr(leaf, "sharding", None) or SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)


def _check_fit(where: str, wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    faults = [f"{name} is missing" for name in wanted if name not in stored]
    faults += [f"{name} is spare" for name in stored if name not in wanted]
    for name in wanted.keys() & stored.keys():
        found, asked = stored[name], wanted[name]
        if tuple(found.shape) != tuple(asked.shape) or found.dtype != asked.dtype:
            faults.append(f"{name} is {found.dtype} {list(found.shape)}, asked for {asked.dtype} {list(asked.shape)}")
    if faults:
        more = f", and {len(faults) - LISTED} more" if len(faults) > LISTED else ""
        raise _Misfit(
            f"{where} does not fit this model or optimiser: {'; '.join(sorted(faults)[:LISTED])}{more}. "
            "Resume with the configuration that the run was started with, or start another run."
        )
