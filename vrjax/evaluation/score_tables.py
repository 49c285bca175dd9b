"""The scores of an evaluation as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vrjax.evaluation.result_files import asked_with

if TYPE_CHECKING:
    from rich.table import Table

MOST_KINDS = 20


def number(value: float | None, signed: bool = False) -> str:
    """Four digits behind the point below 10, two above; a dash where there is no value."""
    if value is None:
        return "–"
    return f"{value:{'+' if signed else ''}.{4 if abs(value) < 10 else 2}f}"


def score_tables(summary: Mapping[str, Any]) -> list[Table]:
    """Tables of a row of `scores.json`: metrics, types, failures; several annotators, and a judge's validation."""
    from rich.markup import escape
    from rich.table import Table

    metrics = Table(
        title=f"{escape(summary['benchmark'])}: {escape(summary['subject'])}",
        caption=f"{summary['n']} questions, {100 * summary['coverage']:.1f}% answered in full. "
        f"Prompt: {escape(asked_with(summary))}. Intervals: 95%, by bootstrap over videos.",
    )
    for column in ("metric", "official", "strict", "interval"):
        metrics.add_column(column, justify="left" if column == "metric" else "right")
    for name in dict.fromkeys([*summary["official"], *summary["strict"]]):
        bounds = summary["intervals"].get(name)
        shown = "–" if bounds is None else f"{number(bounds['low'])} to {number(bounds['high'])}"
        style = "bold" if name == summary["headline"] else None
        row = (number(summary["official"].get(name)), number(summary["strict"].get(name)), shown)
        metrics.add_row(escape(name), *row, style=style)
    tables = [metrics]
    if len(summary["by_type"]) > 1:
        tables.append(_by_type(summary))
    if summary["failures"]:
        failures = Table(title="Failures and faults")
        failures.add_column("kind")
        failures.add_column("count", justify="right")
        found = sorted(summary["failures"].items(), key=lambda pair: -pair[1])
        for kind, count in found[:MOST_KINDS]:
            failures.add_row(escape(kind), str(count))
        if len(found) > MOST_KINDS:
            failures.add_row(f"and {len(found) - MOST_KINDS} other kinds", "")
        tables.append(failures)
    if annotators := summary["details"].get("annotators"):
        tables.append(_annotators(annotators, summary))
    if "judge_validation" in summary:
        tables.append(_validation(summary["judge_validation"]))
    return tables


def _by_type(summary: Mapping[str, Any]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    by_type = summary["by_type"]
    wanted = [summary["headline"], summary["answering"], *([summary["grounding"][0]] if summary["grounding"] else [])]
    keys = [key for key in dict.fromkeys(wanted) if any(key in row for row in by_type.values())]
    table = Table(title="By type (strict)")
    table.add_column("type")
    for key in ("n", *keys):
        table.add_column(escape(key), justify="right")
    for kind, row in by_type.items():
        table.add_row(escape(kind), f"{row['n']:.0f}", *(number(row.get(key)) for key in keys))
    return table


def _annotators(annotators: Mapping[str, Any], summary: Mapping[str, Any]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    first = next(iter(annotators.values()))
    keys = [key for key in dict.fromkeys([summary["headline"], summary["answering"]]) if key in first["strict"]]
    table = Table(title="Annotators (strict)")
    table.add_column("annotator")
    for key in keys:
        table.add_column(escape(key), justify="right")
    for name, row in annotators.items():
        table.add_row(escape(name), *(number(row["strict"].get(key)) for key in keys))
    return table


def _validation(found: Mapping[str, Any]) -> Table:
    from rich.table import Table

    kappa = "no κ" if found["kappa"] is None else f"κ {found['kappa']:.3f}"
    table = Table(title=f"The judge against people: {100 * found['exact']:.1f}% of {found['n']} the same, {kappa}")
    table.add_column("people ↓ judge →")
    for label in found["labels"]:
        table.add_column(label, justify="right")
    for label, row in zip(found["labels"], found["matrix"], strict=True):
        table.add_row(label, *map(str, row))
    return table
