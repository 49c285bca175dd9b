"""A stratified random audit by people, and what it says about the whole (EG-VQA, section 3.1: 1,000 pairs)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_tools.eg_vqa.strata import Strata
from vrjax.records import Question, VideoRecord

Z = 1.959964  # of a 95% interval
EXPECTED_VALID = 0.95  # "more than 95% of the audited samples are verified as valid"


@dataclass(frozen=True)
class Drawn:
    record: VideoRecord
    question: Question
    stratum: tuple[str, str, str]


def draw_audit(records: Sequence[VideoRecord], count: int, seed: int = 0) -> tuple[list[Drawn], dict[str, Any]]:
    """(questions to check, the plan): balanced over source × duration × type, each stratum as many as it can give.

    plan: size and sample of each stratum, and the 95% margin of error that the share of valid questions will have, in
    percentage points, if 95% are valid (`expected_margin`) and at worst (`largest_margin`).
    """
    strata = Strata.of(records)
    by_stratum: dict[tuple[str, str, str], list[Drawn]] = {}
    for record in records:
        source, duration, _ = strata.name(record)
        for question in record.questions:
            stratum = (source, duration, question.type)
            by_stratum.setdefault(stratum, []).append(Drawn(record, question, stratum))
    sizes = {stratum: len(items) for stratum, items in sorted(by_stratum.items())}
    shares = balanced(list(sizes.values()), count)
    drawn: list[Drawn] = []
    for (stratum, _), share in zip(sizes.items(), shares, strict=True):
        items = sorted(by_stratum[stratum], key=lambda one: one.question.question_id)
        drawn += random.Random(f"{seed} {stratum}").sample(items, share)
    plan = {
        "questions": sum(sizes.values()),
        "drawn": len(drawn),
        "strata": [
            {"stratum": list(stratum), "questions": size, "drawn": share}
            for (stratum, size), share in zip(sizes.items(), shares, strict=True)
        ],
    }
    for name, valid in (("expected_margin", EXPECTED_VALID), ("largest_margin", 0.5)):
        parts = [(size, share, valid) for size, share in zip(sizes.values(), shares, strict=True)]
        plan[name] = 100 * _margin(parts)
    return drawn, plan


def balanced(sizes: Sequence[int], count: int) -> list[int]:
    """How many to draw from each stratum: as equal as its size allows, `count` in all (or everything)."""
    shares = [0] * len(sizes)
    left = min(count, sum(sizes))
    while left:
        open_strata = [n for n, size in enumerate(sizes) if shares[n] < size]
        each = max(1, left // len(open_strata))
        for n in open_strata:
            more = min(each, sizes[n] - shares[n], left)
            shares[n] += more
            left -= more
    return shares


def audit_result(plan: Mapping[str, Any], valid: Mapping[tuple[str, ...], Sequence[bool]]) -> dict[str, Any]:
    """The share of valid questions of the whole, each stratum weighted by its size (Cochran 1977, ch. 5), ± in points.

    valid: verdicts by stratum; strata without any are left out and named. A stratum with a single verdict, or with
    equal ones, is taken to vary like the whole.
    """
    rows = [
        (tuple(row["stratum"]), row["questions"], list(valid.get(tuple(row["stratum"]), ()))) for row in plan["strata"]
    ]
    judged = [(size, verdicts) for _, size, verdicts in rows if verdicts]
    missing = [list(stratum) for stratum, size, verdicts in rows if not verdicts and size]
    if not judged:
        return {"audited": 0, "without_verdict": missing}
    total = sum(size for size, _ in judged)
    share = sum(size / total * sum(verdicts) / len(verdicts) for size, verdicts in judged)
    parts = []
    for size, verdicts in judged:
        own = sum(verdicts) / len(verdicts)
        parts.append((size, len(verdicts), own if 0 < own < 1 else share))
    return {
        "audited": sum(len(verdicts) for _, verdicts in judged),
        "valid": Counter(one for _, verdicts in judged for one in verdicts)[True],
        "share_valid": share,
        "margin": 100 * _margin(parts),
        "without_verdict": missing,
    }


def _margin(parts: Sequence[tuple[int, int, float]]) -> float:
    """Of the weighted share; parts: (size, sample, share valid) of each stratum, finite populations corrected."""
    total = sum(size for size, sample, _ in parts if sample)
    variance = sum(
        (size / total) ** 2 * (1 - sample / size) * valid * (1 - valid) / max(1, sample - 1)
        for size, sample, valid in parts
        if sample
    )
    return Z * math.sqrt(variance)
