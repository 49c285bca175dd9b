import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from vrjax.errors import InputError, RunError
from vrjax.loading import load_run
from vrjax.training import sft
from vrjax.training.config import CheckpointConfig, DatasetConfig, InputConfig
from vrjax.training.state import OptimizerConfig

from .shapes_run import tiny_config

STEPS = 16


def lines(run: Path, name: str = "metrics.jsonl") -> list[dict]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def losses(run: Path) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in lines(run) if "loss" in row}


def assert_same_parameters(first: Path, second: Path) -> None:
    trees = [jax.tree.leaves(load_run(run, step=STEPS)[0].params) for run in (first, second)]
    assert all(np.array_equal(x, y) for x, y in zip(*trees, strict=True))


def terminate_at(*steps: int):
    def evaluate(model, step: int, folder: Path) -> dict[str, float]:
        if step in steps and not (folder / f"terminated_{step}").exists():
            (folder / f"terminated_{step}").touch()
            os.kill(os.getpid(), signal.SIGTERM)
        return {"evaluated": float(step)}

    return evaluate


@pytest.fixture(scope="module")
def config(world: Path, compiled: Path, tmp_path_factory: pytest.TempPathFactory):
    return tiny_config(
        world,
        tmp_path_factory.mktemp("run") / "run",
        steps=STEPS,
        validation=(DatasetConfig(world / "clips" / "val.json"),),
        validate_every=4,
        checkpoints=CheckpointConfig(save_every=3),
        evaluate=terminate_at(),
    )


@pytest.fixture(scope="module")
def finished(config):
    """An uninterrupted run, and the compilations that JAX counted after the first epoch of 4 steps."""
    compilations: list[str] = []
    counting = terminate_at()

    def evaluate(model, step: int, folder: Path) -> dict[str, float]:
        if step == 8:  # both programs have run, and both ways of saving
            jax.monitoring.register_event_duration_secs_listener(listen)
        return counting(model, step, folder)

    def listen(event: str, duration_secs: float, **_) -> None:
        if event.endswith("backend_compile_duration"):
            compilations.append(event)

    result = sft(replace(config, evaluate=evaluate))
    jax.monitoring.unregister_event_duration_listener(listen)
    return result, compilations


def test_loss_falls(finished) -> None:
    result, _ = finished
    by_step = losses(result.run_dir)
    assert sorted(by_step) == list(range(1, STEPS + 1))
    # ln(vocabulary) is about 5 at the start.
    assert by_step[1] > 4.5
    assert np.mean([by_step[step] for step in range(STEPS - 3, STEPS + 1)]) < by_step[1] - 0.7
    validations = [row["validation/loss"] for row in lines(result.run_dir) if "validation/loss" in row]
    assert len(validations) == 4
    assert validations == sorted(validations, reverse=True)
    assert result.metrics["validation/loss"] == validations[-1]
    assert result.metrics["evaluated"] == STEPS


def test_nothing_is_compiled_after_warm_up(finished) -> None:
    result, compilations = finished
    assert compilations == []
    ledger = lines(result.run_dir, "ledger.jsonl")
    assert {row["program"] for row in ledger} == {"train", "validate"}
    assert not any(row["after_warm_up"] for row in ledger)
    assert max(row["padding"] for row in lines(result.run_dir) if "padding" in row) <= 0.2


def test_run_directory_explains_itself(finished) -> None:
    run = finished[0].run_dir
    assert json.loads((run / "config.json").read_text())["optimizer"]["learning_rate"] == 3e-3
    assert json.loads((run / "environment.json").read_text())[0]["packages"]["jax"] == jax.__version__
    kept = sorted(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit())
    assert kept == [15, 16]  # the last two; the best of the falling loss is among them
    assert load_run(run)[1] == 16


def test_terminated_runs_go_on_bit_for_bit(config, finished, tmp_path: Path) -> None:
    """SIGTERM in epochs 1 and 2 (4 steps each): saved, ended, and continued to the same parameters and metrics."""
    stopped = replace(config, run_dir=tmp_path / "stopped", evaluate=terminate_at(4, 8))
    ended = [(sft(stopped).ended, (stopped.run_dir / "ended.json").exists()) for _ in range(3)]
    assert ended == [("terminated", False), ("terminated", False), ("finished", True)]
    assert json.loads((stopped.run_dir / "ended.json").read_text())["step"] == STEPS
    assert_same_parameters(stopped.run_dir, finished[0].run_dir)
    assert losses(stopped.run_dir) == losses(finished[0].run_dir)
    assert [row["step"] for row in lines(stopped.run_dir)] == [row["step"] for row in lines(finished[0].run_dir)]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_finished_run_does_nothing_more(config, finished) -> None:
    before = losses(finished[0].run_dir)
    assert sft(config).step == STEPS
    assert losses(finished[0].run_dir) == before


def test_other_settings_are_refused(config, finished) -> None:
    other = replace(config, optimizer=replace(config.optimizer, learning_rate=1.0))
    with pytest.raises(InputError, match=r"holds a run whose optimizer is .*0\.003.*, not .*1\.0"):
        sft(other)


def test_damaged_last_checkpoint_is_passed_over_and_said(config, finished, tmp_path: Path, capsys) -> None:
    short = replace(config, run_dir=tmp_path / "run", evaluate=terminate_at(8))
    sft(short)
    for file in (short.run_dir / "checkpoints" / "8" / "params").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    sft(replace(short, progress=True))
    assert "8: the checkpoint is damaged" in capsys.readouterr().err.replace("\n", " ")
    assert losses(short.run_dir) == losses(finished[0].run_dir)
    assert_same_parameters(short.run_dir, finished[0].run_dir)


def test_loss_that_is_not_finite_names_the_batch(config, tmp_path: Path) -> None:
    wild = OptimizerConfig(learning_rate=1e30, schedule="constant", clip_norm=1e30)
    run = tmp_path / "run"
    with pytest.raises(RunError, match=r"step \d+: the loss is .* holds the records shapes_s3_train_000") as caught:
        sft(replace(config, run_dir=run, optimizer=wild, evaluate=None, validation=(), steps=10))
    (kept,) = run.glob("nonfinite_step_*.npz")
    batch = np.load(kept)
    assert all(name in str(caught.value) for name in batch["names"])
    assert batch["tokens"].shape[0] == len(batch["names"]) == 8
    assert caught.value.exit_code == 1


def test_too_many_damaged_videos_stop_the_run(config, world: Path, tmp_path: Path) -> None:
    """Found while training: files cut short after the survey, without a patch cache."""
    import shutil

    clips = tmp_path / "clips"
    shutil.copytree(world / "clips", clips)

    def cut(count: int):
        def evaluate(model, step: int, folder: Path) -> dict[str, float]:
            for video in sorted((clips / "videos").glob("*train*"))[:count]:
                video.write_bytes(video.read_bytes()[:200])
            return {}

        return evaluate

    lenient = replace(
        config,
        run_dir=tmp_path / "lenient",
        data=(DatasetConfig(clips / "train.json"),),
        validation=(),
        validate_every=1,
        evaluate=cut(2),
        input=InputConfig(threads=1, max_damaged_share=0.1),
    )
    assert sft(lenient).ended == "finished"
    damage = lines(lenient.run_dir, "damage.jsonl")
    assert sorted(row["record"] for row in damage) == ["shapes_s3_train_00000", "shapes_s3_train_00001"]
    shutil.rmtree(clips)
    shutil.copytree(world / "clips", clips)
    strict = replace(lenient, run_dir=tmp_path / "strict", evaluate=cut(8))
    with pytest.raises(RunError, match=r"max_damaged_share allows. The last: record shapes_s3_train"):
        sft(strict)


def test_command_runs_an_experiment_and_changes_its_fields(config, world: Path, tmp_path: Path, capsys) -> None:
    from vrjax.commands.train import Train

    root = Path(__file__).parents[2]
    file = tmp_path / "tiny.py"
    file.write_text(
        f"""import sys
sys.path.insert(0, {str(root)!r})
from pathlib import Path
from tests.training.shapes_run import tiny_config
config = tiny_config(Path({str(world)!r}), Path("nowhere"), steps={STEPS})
"""
    )
    words = [str(file), "--run-dir", str(tmp_path / "run"), "--seed", "7", "--checkpoints.save-every", "50"]
    own, rest = Train.split(["--no-compilation-cache", *words])
    assert own == ["--no-compilation-cache", str(file)]
    assert Train(file, no_compilation_cache=True).run(rest) == 0
    assert "finished after step 16" in capsys.readouterr().out
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (written["seed"], written["checkpoints"]["save_every"]) == (7, 50)
    with pytest.raises(SystemExit) as ended:
        Train(file, no_compilation_cache=True).run(["--no-such-field", "1"])
    assert ended.value.code == 2
    with pytest.raises(InputError, match="no such experiment"):
        Train(tmp_path / "missing.py").run()
