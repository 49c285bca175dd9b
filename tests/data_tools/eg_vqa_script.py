"""What the writer and the two judges of a scripted server say about EG-VQA records."""

from __future__ import annotations

import json
import zlib

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
