"""Train and test by video, stratified on source × duration × evidence density (EG-VQA, section 3.1)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data_tools.eg_vqa.strata import Strata
from vrjax.errors import InputError, RunError
from vrjax.evaluation.official_files import names, youtube_id
from vrjax.records import VideoRecord


@dataclass(frozen=True)
class Split:
    train: list[VideoRecord]
    test: list[VideoRecord]
    strata: Strata


def split_records(records: Sequence[VideoRecord], test_videos: int, seed: int = 0) -> Split:
    """Draw `test_videos` videos; the rest is for training. The same records and seed give the same split.

    Records are shuffled within their strata, the strata put in a row, and every (n / test_videos)-th place is drawn, so
    that any stratum, and any run of strata side by side (a whole source), gets within one video of its share. Records
    of one video (by its YouTube id) stay together, in the stratum of the first.
    Raises InputError where test_videos is not between 1 and the number of videos less 1.
    """
    groups: dict[str, list[VideoRecord]] = {}
    for record in records:
        groups.setdefault(youtube_id(record.video_id), []).append(record)
    if not 0 < test_videos < len(groups):
        raise InputError(f"{test_videos} test videos of {len(groups)} cannot be drawn. Give 1 to {len(groups) - 1}.")
    strata = Strata.of(records)
    order = sorted(groups)
    random.Random(seed).shuffle(order)
    order.sort(key=lambda key: strata.name(groups[key][0]))
    step = len(order) / test_videos
    drawn = {order[int((number + 0.5) * step)] for number in range(test_videos)}
    test = [record for record in records if youtube_id(record.video_id) in drawn]
    train = [record for record in records if youtube_id(record.video_id) not in drawn]
    return Split(train, test, strata)


def check_split(split: Split) -> dict[str, Any]:
    """Shares of each stratum on both sides and the largest difference from the whole, in percentage points.

    Raises RunError where a video is on both sides.
    """
    sides = {"train": split.train, "test": split.test}
    ids = [{youtube_id(one.video_id) for one in side} for side in sides.values()]
    if leaked := sorted(ids[0] & ids[1]):
        raise RunError(f"these videos are in train and test: {names(leaked)}. Split again.")
    everything = [*split.train, *split.test]
    tables: dict[str, Any] = {}
    for title, part in {"source": 0, "duration": 1, "evidence density": 2, "all three": slice(None)}.items():
        whole = Counter(_part(split.strata.name(one), part) for one in everything)
        counts = {name: Counter(_part(split.strata.name(one), part) for one in side) for name, side in sides.items()}
        tables[title] = {
            stratum: {"all": number / len(everything)}
            | {name: counts[name][stratum] / len(side) for name, side in sides.items()}
            for stratum, number in sorted(whole.items())
        }
    largest = {
        title: max(100 * abs(row[side] - row["all"]) for row in table.values() for side in sides)
        for title, table in tables.items()
    }
    return {
        "videos": {name: len(side) for name, side in sides.items()},
        "questions": {name: sum(len(one.questions) for one in side) for name, side in sides.items()},
        "shares": tables,
        "largest_difference": largest,
    }


def _part(stratum: tuple[str, ...], part: int | slice) -> str:
    found = stratum[part]
    return found if isinstance(found, str) else " × ".join(found)
