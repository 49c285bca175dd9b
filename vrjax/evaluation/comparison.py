"""Runs of one benchmark beside each other: the first is what the others are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vrjax.errors import InputError
from vrjax.evaluation.gallery_rows import gallery_row
from vrjax.evaluation.intervals import clustered_interval
from vrjax.evaluation.paired_test import sign_flip_p
from vrjax.evaluation.result_files import ScoredRun, load_scored_run

# Settings that say where things were, not what they were.
_PLACES = frozenset({"subject", "data", "videos", "limit", "scoring"})


def compare_runs(folders: Sequence[Path], metrics: Sequence[str] = ()) -> dict[str, Any]:
    """Compare evaluations, as JSON.

    metrics: strict values to compare; default all that every run has. Only items of all runs are compared; `left_out`
    counts the others. Raises InputError where there are fewer than two runs, they are of different benchmarks, have no
    items in common, or lack a metric.
    """
    if len(folders) < 2:
        raise InputError("there is nothing to compare: name two folders of evaluations or more.")
    runs = [load_scored_run(folder) for folder in folders]
    kinds = sorted({str(run.scores["benchmark"]) for run in runs})
    if len(kinds) > 1:
        raise InputError(f"these are evaluations of different benchmarks ({', '.join(kinds)}). Compare runs of one.")
    names = _names(runs)
    shared = set.intersection(*({row["id"] for row in run.rows} for run in runs))
    if not shared:
        raise InputError(f"{folders[0]} and {folders[1]} have no questions in common.")
    tables = [{row["id"]: row for row in run.rows} for run in runs]
    ids = [row["id"] for row in runs[0].rows if row["id"] in shared]
    known = [name for name in runs[0].scores["strict"] if all(name in run.scores["strict"] for run in runs)]
    unknown = [name for name in metrics if name not in known]
    if unknown:
        raise InputError(f"{unknown[0]!r} is no metric of all these runs. Choose from: {', '.join(known)}.")
    chosen = list(metrics) or known
    headline = runs[0].scores["headline"]
    return {
        "benchmark": kinds[0],
        "headline": headline,
        "answering": runs[0].scores.get("answering", headline),
        "grounding": runs[0].scores.get("grounding"),
        "compared": len(ids),
        "left_out": {name: len(run.rows) - len(ids) for name, run in zip(names, runs, strict=True)},
        "runs": [_run_row(run, name) for run, name in zip(runs, names, strict=True)],
        "pairs": [
            _pair(runs[0], names[0], tables[0], run, name, table, ids, chosen)
            for run, name, table in zip(runs[1:], names[1:], tables[1:], strict=True)
        ],
    }


def _names(runs: Sequence[ScoredRun]) -> list[str]:
    """The folders' names, or as much of their paths as tells them apart."""
    parts = [run.folder.resolve().parts for run in runs]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise InputError(f"{runs[0].folder}: the same evaluation is named twice.")


def _run_row(run: ScoredRun, name: str) -> dict[str, Any]:
    scores = run.scores
    return {
        "name": name,
        "subject": run.name,
        "n": scores["n"],
        "coverage": scores["coverage"],
        "table": scores["table"],
        "official": scores["official"],
        "strict": scores["strict"],
        "intervals": scores["intervals"],
        "by_type": scores["by_type"],
    }


def _pair(
    first: ScoredRun,
    first_name: str,
    first_rows: Mapping[str, Mapping[str, Any]],
    other: ScoredRun,
    name: str,
    rows: Mapping[str, Mapping[str, Any]],
    ids: Sequence[str],
    metrics: Sequence[str],
) -> dict[str, Any]:
    answering = first.scores.get("answering", first.scores["headline"])
    grounding, best = first.scores.get("grounding"), first.scores.get("best", 1.0)
    found: dict[str, Any] = {
        "of": name,
        "against": first_name,
        "settings": _differing(first.settings, other.settings),
        "metrics": {metric: _difference(first_rows, rows, ids, metric) for metric in metrics},
        "by_type": {},
        "changed": [],
    }
    shown = [metric for metric in dict.fromkeys((first.scores["headline"], answering)) if metric in metrics]
    kinds = sorted({kind for name in ids for kind in first_rows[name]["types"]})
    for kind in kinds:
        of_kind = [name for name in ids if kind in first_rows[name]["types"]]
        found["by_type"][kind] = {metric: _difference(first_rows, rows, of_kind, metric) for metric in shown}
    for name in ids:
        before = gallery_row(first_rows[name], answering, grounding, best)
        after = gallery_row(rows[name], answering, grounding, best)
        if before["verdict"] == after["verdict"]:
            continue
        values = [row[name]["values"].get(answering) for row in (first_rows, rows)]
        found["changed"].append(
            {
                "id": name,
                "types": before["types"],
                "question": before["question"],
                "reference": before["reference"],
                "verdicts": [before["verdict"], after["verdict"]],
                "answers": [before["answer"], after["answer"]],
                "values": values,
            }
        )
    found["changed"].sort(key=lambda row: -abs((row["values"][1] or 0) - (row["values"][0] or 0)))
    return found


def _difference(
    first: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]], ids: Sequence[str], metric: str
) -> dict[str, Any]:
    """Means over the items that both have a value of, their difference with its interval, and p."""
    both = [
        (a, b, first[name]["video"])
        for name in ids
        if (a := first[name]["values"].get(metric)) is not None and (b := other[name]["values"].get(metric)) is not None
    ]
    if not both:
        return {"n": 0, "first": None, "other": None, "difference": None, "p": None}
    gains, clusters = [b - a for a, b, _ in both], [video for _, _, video in both]
    return {
        "n": len(both),
        "first": sum(a for a, _, _ in both) / len(both),
        "other": sum(b for _, b, _ in both) / len(both),
        "difference": asdict(clustered_interval(gains, clusters)),
        "p": sign_flip_p(gains, clusters),
    }


def _differing(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Settings that are not the same, by name: what the comparison is about, or what disturbs it."""
    names = sorted({*first, *other} - _PLACES)
    return {name: [first.get(name), other.get(name)] for name in names if first.get(name) != other.get(name)}
