"""Clips of coloured shapes in MovieCORE's form: open questions with plain answers, no evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vrjax.records import VideoRecord


def moviecore_form(records: Sequence[VideoRecord]) -> dict[str, list[dict[str, str]]]:
    """{"<video>.mp4": [{"question", "answer", "classification"}, …]}; the class is the question's type."""
    return {
        Path(record.video_path).name: [
            {"question": one.question, "answer": one.answer, "classification": one.type.capitalize()}
            for one in record.questions
        ]
        for record in records
    }
