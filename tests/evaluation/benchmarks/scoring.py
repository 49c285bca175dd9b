"""Scoring in tests: files in, BenchmarkScore out."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from vrjax.evaluation.benchmark import Benchmark, BenchmarkScore, Item, Prediction, Tools

FIXTURES = Path(__file__).parents[2] / "fixtures"
REALDATA = os.environ.get("VRJAX_REALDATA")
needs_real_data = pytest.mark.skipif(REALDATA is None, reason="VRJAX_REALDATA is not set")


def score(benchmark: Benchmark, items: list[Item], predictions: list[Prediction]) -> BenchmarkScore:
    return asyncio.run(benchmark.score(items, predictions, Tools()))


def score_file(benchmark: Benchmark, data: Path, submission: Path) -> BenchmarkScore:
    items = benchmark.read(data)
    return score(benchmark, items, benchmark.read_submission(submission, items))


def replies(texts: dict[str, str]) -> list[Prediction]:
    return [Prediction(id=name, text=text) for name, text in texts.items()]


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path
