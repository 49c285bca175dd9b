"""Watching checkpoints: each once, half-written ones, restarts, the right best, and a live training run."""

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.training.shapes_run import make_world, tiny_config
from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Benchmark, BenchmarkScore, ItemScore, Parsed, Prediction, PromptForm, Tools
from vrjax.evaluation.benchmarks.eg_vqa import EgVqa
from vrjax.evaluation.intervals import clustered_intervals
from vrjax.evaluation.native_subject import NativeSubject
from vrjax.evaluation.runner import EvaluationOptions, run
from vrjax.evaluation.watch import watch
from vrjax.evidence import TokenSimilarity
from vrjax.generation.sampling import SamplingOptions
from vrjax.loading import load_run
from vrjax.training import sft
from vrjax.training.config import CheckpointConfig

ROOT = Path(__file__).parents[2]
STEPS, EVERY = 12, 4


@dataclass(frozen=True)
class Variety(Benchmark):
    """How many different words an answer has: a figure that every checkpoint has another of."""

    name = "variety"
    headline = "words"
    prompt = PromptForm(name="plain", version=1, template="{question}")

    def read(self, data):
        return EgVqa().read(data)[:6]

    def question(self, item):
        return item.question

    def parse(self, item, text):
        return Parsed(values={"answer": text})

    def read_submission(self, path, items):
        return [Prediction(**row) for row in json.loads(path.read_text())]

    def write_submission(self, path, items, predictions):
        path.write_text(json.dumps([{"id": one.id, "text": one.text} for one in predictions]))

    async def score(self, items, predictions, tools):
        said = {one.id: one.text or "" for one in predictions}
        found = [ItemScore(id=item.id, video=item.video, types=("one",), values={"words": words_in(said[item.id])})
                 for item in items]  # fmt: skip
        interval = clustered_intervals({"words": [one.values["words"] for one in found]}, [one.video for one in found])
        mean = interval["words"].mean
        values, by_type = {"words": mean}, {"one": {"n": 6.0, "words": mean}}
        return BenchmarkScore(benchmark=self.name, official=values, strict=values, intervals=interval, coverage=1.0,
                              by_type=by_type, failures=Counter(), items=found)  # fmt: skip


def words_in(text: str) -> float:
    return len(set(text.split())) / (1 + len(text.split()))


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"), train=16, val=4)


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory) -> Path:
    """A run with checkpoints 4, 8 and 12."""
    folder = tmp_path_factory.mktemp("run") / "run"
    saved = CheckpointConfig(save_every=EVERY, keep_last=20)
    sft(tiny_config(world, folder, steps=STEPS, checkpoints=saved))
    return folder


def subject(model, label) -> NativeSubject:
    sampling = SamplingOptions(max_tokens=24, temperature=0)
    return NativeSubject(model, label, Variety(), wording="checkpoint", sampling=sampling)


def options(world: Path, out: Path) -> EvaluationOptions:
    return EvaluationOptions(data=world / "clips/val.json", out=out, report_frames=0, progress=False)


def test_every_checkpoint_once_and_the_right_best(world, finished, tmp_path):
    training = tmp_path / "run"
    shutil.copytree(finished, training)
    folder = training / "checkpoints"
    # Copies that are under way, as a kill or a slow disk leaves them.
    shutil.copytree(folder / "4", folder / "5")
    for path in (folder / "5").rglob("*"):
        if path.is_file() and path.stat().st_size > 200:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    (folder / "6").mkdir()
    shutil.copytree(folder / "8", folder / "9.orbax-checkpoint-tmp-3")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    (training / "ended.json").unlink()  # training goes on …
    said: list[str] = []
    looks: list[int] = []

    def sleep(_: float) -> None:
        looks.append(len(said))
        if len(looks) == 2:  # … the copy is finished …
            shutil.rmtree(folder / "6")
            shutil.copytree(folder / "12", folder / "6")
        if len(looks) == 3:  # … and training ends
            shutil.copy(finished / "ended.json", training)

    call = (Variety(), folder, options(world, tmp_path / "out"), Tools(), subject)
    found = watch(*call, say=said.append, sleep=sleep)
    assert len(looks) == 3
    assert list(found["steps"]) == ["4", "6", "8", "12"]
    assert list(found["unreadable"]) == ["5"]
    assert found["ended"] is True
    assert {path: path.stat().st_mtime_ns for path in before if path.exists() and "/6" not in str(path)} == {
        path: when for path, when in before.items() if "/6" not in str(path)
    }
    # Each value is that of the checkpoint's own model, evaluated apart from all this.
    items = Variety().read(world / "clips/val.json")
    for step in (4, 12):
        apart = run(Variety(), subject(load_run(finished, step=step)[0], "apart"), options(world, tmp_path / f"{step}"))
        assert apart.score is not None
        assert found["steps"][str(step)] == apart.score.strict
        answers = (tmp_path / "out/steps" / f"{step:06d}" / "answers.jsonl").read_text().splitlines()
        assert len(answers) == len(items)
    assert found["steps"]["6"] == found["steps"]["12"]
    values = {int(step): row["words"] for step, row in found["steps"].items()}
    assert len(set(values.values())) > 1
    best = max(values, key=lambda step: (values[step], step))
    assert found["best"] == {"step": best, "value": values[best]}
    assert f"the best by words is step {best}" in said[-1]
    assert (tmp_path / "out/metric.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out/report.html").read_text()
    assert f"the best by words is step {best}" in page
    assert "Training has ended" in page

    # Started again, nothing is evaluated a second time.
    def never(model, label):
        raise AssertionError(f"{label} was evaluated again")

    again = watch(*call[:-1], never, say=said.append, sleep=sleep)
    assert again["steps"] == found["steps"]
    with pytest.raises(InputError, match=r"'gas' is no metric of variety\. Choose one of: words"):
        watch(*call, metric="gas", say=said.append, sleep=sleep)


def test_a_run_that_has_not_begun_is_waited_for_and_patience_ends(world, finished, tmp_path):
    training, now, said = tmp_path / "run", [0.0], []

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] == 20:
            shutil.copytree(finished, training)
            (training / "ended.json").unlink()

    found = watch(
        Variety(), training / "checkpoints", options(world, tmp_path / "out"), Tools(), subject, poll_s=10,
        patience_s=45, say=said.append, sleep=sleep, clock=lambda: now[0],
    )  # fmt: skip
    assert list(found["steps"]) == ["4", "8", "12"]
    assert found["ended"] is False
    assert any("has not said that it ended" in line for line in said)
    assert now[0] == 70


def test_a_run_that_ended_without_checkpoints(world, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/ended.json").write_text('{"ended": "finished", "step": 0}')
    said: list[str] = []
    found = watch(Variety(), tmp_path / "run", options(world, tmp_path / "out"), Tools(), subject, say=said.append)
    assert found["best"] is None
    assert "no checkpoint that could be evaluated" in said[-1]


TRAIN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.training.shapes_run import tiny_config
from vrjax.training.config import CheckpointConfig
from vrjax.training import sft
world, run = Path(sys.argv[2]), Path(sys.argv[3])
sft(tiny_config(world, run, steps=60, checkpoints=CheckpointConfig(save_every=10, keep_last=50)))
"""


@pytest.mark.slow
def test_a_live_training_run_is_followed(world, tmp_path):
    """Training and watching are processes of their own; the watch is killed on its way and meets half a checkpoint."""
    training, out = tmp_path / "run", tmp_path / "out"
    words = ["evaluate", "eg_vqa", "--watch", str(training / "checkpoints"), "--data", str(world / "clips/val.json"),
             "--out", str(out), "--similarity", "tokens", "--wording", "checkpoint", "--max-tokens", "48",
             "--poll-s", "0.5", "--no-progress", "--report-frames", "0", "--metric", "answer_relaxed"]  # fmt: skip

    def start_watch() -> subprocess.Popen:
        command = [sys.executable, "-m", "vrjax.cli", *words]
        return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)

    train = subprocess.Popen([sys.executable, "-c", TRAIN, str(ROOT), str(world), str(training)])
    watching = start_watch()
    while not list(out.glob("steps/*/answers.jsonl")):
        assert watching.poll() is None
        time.sleep(0.05)
    watching.kill()
    watching.wait()
    half = shutil.ignore_patterns("d", "note")
    shutil.copytree(training / "checkpoints/10", training / "checkpoints/15", ignore=half)
    watching = start_watch()
    _, err = watching.communicate()
    assert watching.returncode == 0, err
    assert train.wait() == 0
    found = json.loads((out / "watch.json").read_text())
    assert list(found["steps"]) == ["10", "20", "30", "40", "50", "60"]
    assert list(found["unreadable"]) == ["15"]
    assert found["ended"] is True
    values = {int(step): row["answer_relaxed"] for step, row in found["steps"].items()}
    assert len(set(values.values())) > 1
    best = max(values, key=lambda step: (values[step], step))
    assert found["best"]["step"] == best
    assert f"the best by answer_relaxed is step {best}" in err
    for step in values:
        ids = [json.loads(line)["id"] for line in (out / f"steps/{step:06d}/answers.jsonl").read_text().splitlines()]
        assert len(ids) == len(set(ids)) == 16
    # The best again, on its own.
    model, _ = load_run(training, step=best)
    sampling = SamplingOptions(max_tokens=48, temperature=0)
    apart = NativeSubject(model, "apart", EgVqa(), wording="checkpoint", sampling=sampling)
    again = run(EgVqa(), apart, replace(options(world, tmp_path / "apart")), Tools(similarity=TokenSimilarity()))
    assert again.score is not None
    assert again.score.strict == found["steps"][str(best)]
