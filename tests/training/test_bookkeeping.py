"""Damage that two processes find in their own rows, told to both."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from vrjax.errors import RunError
from vrjax.run_directory import RunDirectory
from vrjax.training import bookkeeping
from vrjax.training.bookkeeping import StepBook

METRICS: Any = {name: np.ones(()) for name in ("loss", "grad_norm", "tokens")}


def book(folder: Path, writes: bool, share: float = 0.5) -> StepBook:
    """Ten videos of one question each."""
    rows = [SimpleNamespace(name=f"v{number}", questions=(0,)) for number in range(10)]
    log: Any = SimpleNamespace(metrics=lambda *_: None, advance=lambda *_: None, say=lambda *_: None)
    survey: Any = SimpleNamespace(rows=rows, damaged=(), questions=10)
    return StepBook(RunDirectory(folder, writes=writes), log, survey, share)


def enter(book: StepBook, step: int, *damaged: str) -> None:
    batch = SimpleNamespace(epoch=0, padding=0.0, damaged=tuple((name, "cut short") for name in damaged))
    book.enter(step, cast(Any, batch), METRICS)


def tell(books: list[StepBook], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [json.dumps(each._untold) for each in books]
    monkeypatch.setattr(bookkeeping, "gather_texts", lambda text: texts)
    for each in books:
        each.tell_damage()


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[StepBook]:
    monkeypatch.setattr("jax.process_count", lambda: 2)
    return [book(tmp_path, writes=True), book(tmp_path, writes=False)]


def test_all_know_and_one_file_holds_what_each_has_found(two, tmp_path, monkeypatch) -> None:
    enter(two[0], 1, "v3")
    enter(two[1], 2, "v5")
    enter(two[1], 3, "v3", "v5")  # seen again
    tell(two, monkeypatch)
    tell(two, monkeypatch)
    assert two[0].damaged == two[1].damaged == {"v3", "v5"}
    rows = [json.loads(line) for line in (tmp_path / "damage.jsonl").read_text().splitlines()]
    assert rows == [
        {"step": 1, "record": "v3", "message": "cut short"},
        {"step": 2, "record": "v5", "message": "cut short"},
    ]


def test_the_share_counts_what_all_have_found(two, monkeypatch) -> None:
    """Three and three of ten: too many together, not for either alone."""
    enter(two[0], 1, "v0", "v1", "v2")
    enter(two[1], 1, "v3", "v4", "v5")
    with pytest.raises(RunError, match=r"60\.0%"):
        tell(two, monkeypatch)
