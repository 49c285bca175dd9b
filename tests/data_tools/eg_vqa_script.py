"""What the writer and the two judges of a scripted server say about EG-VQA records, and how tests run the stages."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from pathlib import Path

from data_tools.cli import main
from vrjax.records import VideoRecord, load_records

KINDS = ("descriptive", "temporal", "causal", "counterfactual")


def number(text: str, salt: str) -> int:
    return zlib.crc32(f"{salt} {text}".encode())


def judged(model: str, question: str) -> dict:
    """The one judge rejects every fifth question, the other every seventh."""
    reject = number(question, model) % {"judge-a": 5, "judge-b": 7}[model] == 0
    return {"reason": "so", "question_reasonable": 5, "answer_correct": 2 if reject else 4, "evidence_aligned": 5}


def script(sent: dict) -> str:
    item = json.loads(sent["messages"][1]["content"])
    if sent["model"] != "writer":
        return json.dumps(judged(sent["model"], item["question"]))
    kind = next(kind for kind in KINDS if f"Kind: {kind}" in sent["messages"][0]["content"])
    segments = item["segments"]
    first = segments[number(kind, segments[0]["description"]) % len(segments)]
    return json.dumps({"questions": [
        {"question": f"What about {first['description'].strip()} ({kind})?", "answer": f"It is {kind}.",
         "evidence": [len(segments), first["number"]]},
        {"question": f"And what of {segments[-1]['description'].strip()} at last ({kind})?", "answer": "That.",
         "evidence": [len(segments)]},
    ]})  # fmt: skip


def made_up(count: int) -> list[VideoRecord]:
    return [
        VideoRecord.model_validate({
            "video_id": f"made-up-{n:03d}", "video_path": f"{n}.mp4", "duration": 20.0 + 7 * n,
            "data_source": ("ActivityNet Captions", "YouCook2", "HiREST")[n % 3],
            "metadata": {"segments": [
                {"timestamp": [4 * k, 4 * k + 3], "description": f"step {k} of {n} "} for k in range(3 + n % 3)
            ]},
        })
        for n in range(count)
    ]  # fmt: skip


def writer(url: str) -> list[str]:
    return ["--llm", "openai:writer", "--base-url", url]


def judges(url: str) -> list[str]:
    return ["--first.llm", "openai:judge-a", "--first.base-url", url, "--second.llm", "openai:judge-b",
            "--second.base-url", url]  # fmt: skip


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def start(*words) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "data_tools.cli", "eg-vqa", *map(str, words)],
                            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)  # fmt: skip


def real_records(folder: Path, work: Path, count: int) -> list[VideoRecord]:
    """The first curated records of three sources, as many of each."""
    captions = [str(folder / "activitynet_captions" / name) for name in ("val_1.json", "val_2.json")]
    words = ["--activitynet", *captions, "--youcook2", str(next((folder / "youcook2").glob("*.json")))]
    words += ["--hirest-val", str(folder / "hirest" / "all_data_val.json")]
    for stage, more in (("read", words), ("curate", [])):
        assert main(["eg-vqa", stage, "--work", str(work), *more]) == 0
    by_source: dict[str, list[VideoRecord]] = {}
    for record in load_records(work / "records.jsonl"):
        by_source.setdefault(record.data_source, []).append(record)
    assert len(by_source) == 3
    return [record for records in by_source.values() for record in records[: count // 3]]
