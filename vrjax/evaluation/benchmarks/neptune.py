"""Neptune: multiple choice about videos of minutes (Nagrani et al., 2024; github.com/google-deepmind/neptune).

Data: `neptune_full.json`, `neptune_mmh.json` or `neptune_mma.json`. As many options as a record has: 4 or 5. Speech is
allowed. The authors publish no scorer and no submission form: the measure is accuracy, and predictions are a mapping
from a question's key to `answer_id`, the number of an option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Item, Prediction
from vrjax.evaluation.multiple_choice import LETTERS, MultipleChoice, lettered, option_number, right
from vrjax.evaluation.official_files import Row, check_known, check_row, find, read_json, read_rows, write_whole
from vrjax.evaluation.predictions import Answered

_LINK = re.compile(r"(?:[?&]v=|youtu\.be/)([\w-]{11})")


class _Question(Row):
    model_config = ConfigDict(extra="allow")

    key: str
    video_id: str
    question: str
    answer_id: int | None = None
    kind: str = Field("", alias="question type")


class _Number(Row):
    answer_id: int


@dataclass(frozen=True, kw_only=True)
class Neptune(MultipleChoice):
    """subset: which file of a folder is read (full, or the harder ones that need vision: mmh and mma)."""

    name = "neptune"
    subset: Literal["full", "mmh", "mma"] = "full"

    def read(self, data: Path) -> list[Item]:
        path = data if data.is_file() else find(data, f"neptune_{self.subset}.json")
        return [_item(path, row) for row in read_rows(path, _Question, "key", "questions")]

    def read_submission(self, path: Path, items: Sequence[Item]) -> list[Prediction]:
        content = read_json(path, dict, "answers")
        check_known(path, content, [item.id for item in items])
        rows = {name: check_row(path, name, {"answer_id": value}, _Number) for name, value in content.items()}
        return [numbered(name, row.answer_id) for name, row in rows.items()]

    def write_submission(self, path: Path, items: Sequence[Item], predictions: Sequence[Prediction]) -> None:
        """Numbers of options by key; questions whose reply could not be read are left out."""
        chosen = {one.item.id: option_number(one) for one in self.answered(items, predictions)}
        numbers = {name: number for name, number in chosen.items() if number is not None}
        write_whole({path: json.dumps(numbers, indent=1) + "\n"})

    def official(self, pairs: Sequence[Answered]) -> tuple[Mapping[str, float], Sequence[str]]:
        """The paper's accuracy over all questions."""
        return {"accuracy": sum(map(right, pairs)) / len(pairs)}, ()


def numbered(name: str, number: int) -> Prediction:
    """The prediction of an option's number, from 0; one that there is no letter for is kept, and is no option."""
    return Prediction(id=name, parsed={"choice": LETTERS[number] if 0 <= number < len(LETTERS) else str(number)})


def _item(path: Path, row: _Question) -> Item:
    extra = row.model_extra or {}
    texts = [extra[f"answer_choice_{n}"] for n in range(len(LETTERS)) if extra.get(f"answer_choice_{n}") is not None]
    numbers = [n for n in range(len(LETTERS)) if extra.get(f"answer_choice_{n}") is not None]
    if len(texts) < 2 or numbers != list(range(len(texts))) or not all(isinstance(text, str) for text in texts):
        raise InputError(
            f"{path}: record {row.key}: answer_choice_0, answer_choice_1, …: expected texts without a gap, "
            f"found numbers {numbers}. Correct the record."
        )
    if row.answer_id is not None and not 0 <= row.answer_id < len(texts):
        raise InputError(
            f"{path}: record {row.key}: answer_id: {row.answer_id} is none of its {len(texts)} options. "
            "Correct the record."
        )
    link = _LINK.search(row.video_id)
    return Item(
        id=row.key,
        video=link[1] if link else row.video_id,
        question=row.question,
        options=lettered(texts),
        types=(row.kind,) if row.kind else (),
        reference=None if row.answer_id is None else {"choice": LETTERS[row.answer_id]},
    )
