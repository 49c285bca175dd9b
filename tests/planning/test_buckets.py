"""The buckets command against padding worked out from the survey that it leaves behind."""

import json
import re
from pathlib import Path

import pytest

from vrjax.commands.buckets import Buckets

EXPERIMENT = """
from pathlib import Path
from tests.training.shapes_run import tiny_config
config = tiny_config(Path({world!r}), Path({run!r}))
"""


def test_one_bucket_pads_every_row_to_the_largest(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = tmp_path / "experiment.py", tmp_path / "run"
    file.write_text(EXPERIMENT.format(world=str(world), run=str(run)))
    assert Buckets(file).run(["--batch.max-programs", "1"]) == 0
    output = capsys.readouterr().out
    rows = [row[2] for row in json.loads((run / "survey.json").read_text())["survey"]["rows"]]
    tokens = sum(length + frames * patches for length, _, frames, patches, *_ in rows)
    largest = [max(column) for column in zip(*rows, strict=True)]
    up = -(-largest[0] // 8) * 8  # lengths are rounded up to 8
    share = 1 - tokens / (len(rows) * (up + largest[2] * largest[3]))
    assert f"{len(rows)} rows in 1 bucket(s), {share:.1%} padding" in re.sub(r"\s+", " ", output)
