"""Rows as the stages write them, for tests of the review tools."""

from __future__ import annotations

from data_tools.review.items import Named

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def segments(count: int = 4) -> list[dict]:
    return [{"timestamp": [10.0 * n, 10.0 * n + 8], "description": f"step {n}"} for n in range(count)]


def queue_row(number: int, video_path: str = "clip.mp4", text: str = "") -> dict:
    return {
        "question_id": f"q{number:03d}", "video_id": f"video-{number % 5}", "video_path": video_path, "duration": 60.0,
        "type": "causal", "decision": "queued", "why": "the judges disagree",
        "question": {"question_id": f"q{number:03d}", "question": f"Why {number}? {text}", "type": "causal",
                     "answer": f"Because of {number}.", "evidence": segments()[1:3]},
        "verdicts": [{"judge": "a", "ratings": {"answer_correct": 5}, "reason": text}, None],
        "segments": segments(),
    }  # fmt: skip


def question_item(number: int) -> Named:
    row = queue_row(number)
    return row["question_id"], {
        "kind": "question", "video": {"id": row["video_id"], "path": row["video_path"], "duration": row["duration"]},
        "question": {name: row["question"][name] for name in ("question", "type", "answer", "evidence")},
        "segments": row["segments"],
    }  # fmt: skip


def pair_item(number: int) -> Named:
    video = {"id": f"c{number}.mp4", "path": f"c{number}.mp4", "duration": None}
    return f"c{number}.mp4/1", {
        "kind": "pair", "video": video, "question": f"Why {number}?", "answer": "So.", "evidence": [],
    }  # fmt: skip


def rated(value: int = 4, **changes: int) -> dict:
    """All dimensions of a pair at a value; `answers_depth=2` changes one."""
    names = ("relevance", "clarity", "depth", "answerability")
    sides = {side: dict.fromkeys(names, value) for side in ("questions", "answers")}
    for name, one in changes.items():
        side, _, dimension = name.partition("_")
        sides[side][dimension] = one
    return {"ratings": sides, "comment": ""}
