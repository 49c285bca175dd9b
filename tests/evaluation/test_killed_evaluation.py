"""An evaluation killed ten times at random during 500 items ends with the same answers and scores as one in one go."""

import json
import random
import subprocess
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

import pytest

from data_tools.shapes.dataset import DatasetOptions, make_dataset
from tests.evaluation.chat_server import chat_server
from vrjax.records import VideoRecord, load_records, save_records

ROOT = Path(__file__).parents[2]
KILLS, VIDEOS, QUESTIONS = 10, 10, 50


def said(text: str, pictures: int) -> str:
    """An answer that depends on the question alone; some are malformed."""
    rng = random.Random(zlib.crc32(text.encode()))
    start = rng.randrange(8)
    if rng.random() < 0.1:
        return "I am not sure."
    line = f"Time:00:0{start}-00:0{start + 2}, Des: the {rng.choice(['red', 'blue'])} circle turns green"
    return f"<evidence>\n{line}\n</evidence>\n<think>seen</think>\n<answer>{rng.choice(['green', 'red'])}</answer>"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """500 questions about ten clips, one of which is cut short and one missing."""
    folder = tmp_path_factory.mktemp("data")
    make_dataset(folder, DatasetOptions(train=1, val=0, test=VIDEOS))
    records = []
    for record in load_records(folder / "test.json"):
        many = [
            question.model_copy(
                update={"question_id": f"{record.video_id}_{n:02d}", "question": f"{question.question} ({n})"}
            )
            for n, question in enumerate([*record.questions] * 13)
        ][:QUESTIONS]
        records.append(VideoRecord.model_validate({**record.model_dump(), "questions": many}))
    cut = folder / records[3].video_path
    cut.write_bytes(cut.read_bytes()[:500])
    (folder / records[7].video_path).unlink()
    save_records(folder / "test.json", records)
    return folder


def start(data: Path, out: Path, url: str) -> subprocess.Popen:
    words = ["evaluate", "eg_vqa", "--data", str(data / "test.json"), "--out", str(out), "--llm", "openai:tiny",
             "--base-url", url, "--similarity", "tokens", "--no-progress", "--frames.frames", "2",
             "--frames.min-pixels", "3136", "--frames.max-pixels", "3136", "--report-frames", "0"]  # fmt: skip
    command = [sys.executable, "-m", "vrjax.cli", *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def answered(out: Path) -> int:
    path = out / "answers.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.slow
def test_killed_ten_times_at_random(data, tmp_path):
    with chat_server(said, delay_s=0.01) as server:
        whole = start(data, tmp_path / "whole", server.url)
        assert whole.wait() == 0, whole.stderr.read() if whole.stderr else ""
        server.asked.clear()
        rng, out = random.Random(1), tmp_path / "killed"
        for kill in range(KILLS):
            process = start(data, out, server.url)
            target = answered(out) + rng.randint(1, 40)
            while process.poll() is None and answered(out) < target:
                time.sleep(0.002)
            time.sleep(rng.random() * 0.05)
            assert process.poll() is None, f"ended before kill {kill}"
            process.kill()
            process.wait()
        last = start(data, out, server.url)
        assert last.wait() == 0, last.stderr.read() if last.stderr else ""
        asked = sum(server.asked.values())

    lines = {name: (tmp_path / name / "answers.jsonl").read_text().splitlines() for name in ("whole", "killed")}
    assert len(lines["whole"]) == len(lines["killed"]) == VIDEOS * QUESTIONS
    assert set(lines["whole"]) == set(lines["killed"])
    ids = Counter(json.loads(line)["id"] for line in lines["killed"])
    assert set(ids.values()) == {1}
    # Those that were under way at a kill are asked again, and no others: at most 8 at a time.
    assert (VIDEOS - 2) * QUESTIONS <= asked <= (VIDEOS - 2) * QUESTIONS + KILLS * 8
    for name in ("scores.json", "items.jsonl", "eg_vqa_result.json"):
        whole_text, killed_text = ((tmp_path / run / name).read_text() for run in ("whole", "killed"))
        assert whole_text == killed_text, name
    scores = json.loads((tmp_path / "killed" / "scores.json").read_text())
    assert scores["failures"]["video"] == 2 * QUESTIONS
    assert 0 < scores["strict"]["soft_eg_f1"] < 1
