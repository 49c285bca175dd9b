"""Every command of the README runs, in the order of the page, on small inputs (`make demo` has a test of its own)."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHORTER = {
    "vrjax-data shapes": "--clips 16 --val-clips 4 --test-clips 4",
    "vrjax answer": "--max-tokens 8",
    "vrjax evaluate": "--max-tokens 16 --similarity tokens --no-progress --report-frames 2",
    "vrjax train experiments/shapes_sft": "--no-progress --optimizer.warmup 1",
    "vrjax train experiments/shapes_grpo": "--no-progress --optimizer.warmup 1 --rollout.max-tokens 8",
}


def readme_commands() -> list[str]:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    lines = [line.split("#")[0].strip() for kind, block in blocks if not kind for line in block.splitlines()]
    return [line for line in lines if line.startswith("vrjax")]


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path):
    commands = readme_commands()
    names = {" ".join(command.split()[:2]) for command in commands}
    wanted = ("answer", "check-videos", "train", "score", "export", "evaluate", "compare")
    assert names >= {f"vrjax {name}" for name in wanted}
    for folder in ("experiments", "data_tools", "vrjax"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    shutil.copy(ROOT / "tests/fixtures/eg_vqa_result.json", tmp_path / "results.json")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(command: str) -> str:
        extra = next((more for start, more in SHORTER.items() if command.startswith(start)), "")
        words = shlex.split(
            f"{command.replace('--steps 700', '--steps 3').replace('--steps 120', '--steps 2')} {extra}"
        )
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    # Those that make something come first; the page shows them in the order in which people want them.
    for start in ("vrjax-data shapes", "vrjax train experiments/shapes_sft", "vrjax export runs/shapes exported"):
        run(next(command for command in commands if command.startswith(start)))
    for start in ("vrjax export runs/shapes runs/shapes_model", "vrjax train experiments/shapes_grpo"):
        run(next(command for command in commands if command.startswith(start)))
    run(next(command for command in commands if command.startswith("vrjax report")))
    assert "fits" in run(next(command for command in commands if command.startswith("vrjax plan")))
    for command in (command for command in commands if command.startswith(("vrjax evaluate", "vrjax compare"))):
        run(command)
    assert len(json.loads((tmp_path / "runs/watch/watch.json").read_text())["steps"]) == 1
    (tmp_path / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nHello.\n")
    run(re.search(r"`(vrjax transcribe --from[^`]*)`", (ROOT / "README.md").read_text()).group(1))  # type: ignore[union-attr]
    reward = re.search(r"```\n(from vrjax.rewards.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert reward is not None
    (tmp_path / "my_reward.py").write_text(reward.group(1))
    run("vrjax train experiments/shapes_grpo.py --steps 120 --run-dir runs/mine --reward my_reward.py:short")
    clips = sorted((tmp_path / "data/shapes/videos").glob("*.mp4"))
    shutil.copy(clips[0], tmp_path / "clip.mp4")
    (tmp_path / "videos").symlink_to(tmp_path / "data/shapes/videos")
    (tmp_path / "runs/demo").mkdir(parents=True)
    (tmp_path / "runs/demo/model").symlink_to(tmp_path / "exported")
    assert "Answer" in run(next(command for command in commands if command.startswith("vrjax answer")))
    run(next(command for command in commands if command.startswith("vrjax check-videos")))
    (tmp_path / "predictions.json").write_text('{"q1": "A boat."}')
    (tmp_path / "references.json").write_text('{"q1": ["A boat at sea.", "A ship."]}')
    judged = json.loads((ROOT / "tests/fixtures/moviecore_predictions.json").read_text())
    for row in (row for rows in judged.values() for row in rows):
        row["judged"] = dict.fromkeys(("accuracy", "comprehensiveness", "depth", "evidence", "coherence"), 3)
    for name in ("base.json", "ace.json"):
        (tmp_path / name).write_text(json.dumps(judged))
    scored = "".join(run(command) for command in commands if command.startswith("vrjax score"))
    assert all(word in scored for word in ("soft", "BLEU-4", "Gains over base"))

    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    done = subprocess.run(
        [sys.executable, "-c", code.group(1).replace("SamplingOptions(", "SamplingOptions(max_tokens=8, ")],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_conversion_of_the_readme_runs(smollm2_file, tmp_path):
    (tmp_path / smollm2_file.name).symlink_to(smollm2_file)
    (command,) = (command for command in readme_commands() if command.startswith("vrjax convert-gguf"))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(shlex.split(command), cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "smollm2" / "model.safetensors").is_file()
