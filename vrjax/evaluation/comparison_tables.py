"""A comparison as tables: for a terminal, and for a page with the scatter of answers against grounding."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vrjax.evaluation.report import Figure, Table, write_report
from vrjax.evaluation.scatter import Point, scatter
from vrjax.evaluation.score_tables import number

LONGEST = 60  # letters of a text in a cell


def comparison_tables(found: Mapping[str, Any], most_changed: int = 20) -> list[Table]:
    """The paper's table, one row a run; for each pair the metrics, the types, and the items that changed."""
    tables = [_paper(found)]
    for pair in found["pairs"]:
        title = f"{pair['of']} against {pair['against']}"
        tables.append(_metrics(pair, title))
        if len(pair["by_type"]) > 1:
            tables.append(_types(pair, title))
        tables.append(_changed(pair, title, most_changed))
    return tables


def _paper(found: Mapping[str, Any]) -> Table:
    """Official values in the form of the paper's table, then the headline with its interval."""
    columns = list(found["runs"][0]["table"] or found["runs"][0]["official"])
    rows = []
    for run in found["runs"]:
        values = run["table"] or run["official"]
        bounds = run["intervals"].get(found["headline"])
        shown = "–" if bounds is None else f"{bounds['low']:.4f} to {bounds['high']:.4f}"
        headline = number(run["strict"].get(found["headline"]))
        cells = [f"{values[name]:.2f}" if name in values else "–" for name in columns]
        rows.append((run["name"], run["subject"], str(run["n"]), *cells, headline, shown))
    text = [f"{found['compared']} questions are compared."]
    text += [f"{name}: {count} questions are not in all runs and are left out." for name, count in
             found["left_out"].items() if count]  # fmt: skip
    names = ("run", "system", "n", *columns, f"{found['headline']} (strict)", "95%")
    return Table(f"{found['benchmark']}: official values", names, rows, text)


def _metrics(pair: Mapping[str, Any], title: str) -> Table:
    rows = [(name, *_cells(row)) for name, row in pair["metrics"].items()]
    text = ["Strict values. Intervals of the difference: bootstrap over videos; p: permutation test over videos."]
    for name, (before, after) in pair["settings"].items():
        text.append(f"other {name}: {_short(_plain(before))} and {_short(_plain(after))}")
    return Table(title, ("metric", pair["against"], pair["of"], "difference", "95%", "p"), rows, text)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    gain = row["difference"]
    if gain is None:
        return ("–",) * 5
    bounds = f"{gain['low']:+.4f} to {gain['high']:+.4f}"
    return number(row["first"]), number(row["other"]), number(gain["mean"], signed=True), bounds, f"{row['p']:.4f}"


def _types(pair: Mapping[str, Any], title: str) -> Table:
    rows = []
    for kind, by_metric in pair["by_type"].items():
        for metric, row in by_metric.items():
            rows.append((kind, metric, str(row["n"]), *_cells(row)))
    columns = ("type", "metric", "n", pair["against"], pair["of"], "difference", "95%", "p")
    return Table(f"By type: {title}", columns, rows)


def _changed(pair: Mapping[str, Any], title: str, most: int) -> Table:
    changed = pair["changed"]
    counts = Counter(f"{before} → {after}" for before, after in (row["verdicts"] for row in changed))
    text = [", ".join(f"{kind}: {count}" for kind, count in counts.most_common()) or "No verdict changed."]
    if len(changed) > most:
        text.append(f"The first {most} of {len(changed)}, those that changed most.")
    rows = [
        (row["id"], " → ".join(row["verdicts"]), _short(row["question"]), _short(row["answers"][0]),
         _short(row["answers"][1]), _short(row["reference"]))
        for row in changed[:most]
    ]  # fmt: skip
    columns = ("item", "verdict", "question", pair["against"], pair["of"], "reference")
    return Table(f"Items that changed: {title}", columns, rows, text)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def write_comparison(path: Path, found: Mapping[str, Any], tables: Sequence[Table]) -> None:
    """The tables as a page, with a point a run where the benchmark measures grounding (EG-VQA, figure 7)."""
    sections: list[Table | Figure] = list(tables)
    if found["grounding"] is not None:
        x, y = found["answering"], found["grounding"][0]
        points = [
            Point(run["strict"][x], run["strict"][y], run["name"], main=number == 0)
            for number, run in enumerate(found["runs"])
            if x in run["strict"] and y in run["strict"]
        ]
        sections.insert(1, Figure("Answers against grounding", scatter(points, x, y)))
    names = ", ".join(run["name"] for run in found["runs"])
    write_report(path, f"{found['benchmark']}: runs compared", names, sections)
