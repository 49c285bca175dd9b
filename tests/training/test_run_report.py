"""Slow steps found by hand in made-up times, and the page of made-up runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from vrjax.commands.report import Report
from vrjax.errors import InputError
from vrjax.training.step_times import median_phases, slow_steps


def steps(*seconds: float) -> list[dict]:
    """Step 1 compiles; a rollout takes .6 of a second, of which decoding takes .5, and the update the rest."""
    return [
        {"step": number, "seconds": value, "reward": number / 10, "seconds/rollout": 0.6, "seconds/decode": 0.5,
         "seconds/update": value - 0.6}
        for number, value in enumerate(seconds, 1)
    ]  # fmt: skip


def test_a_slow_step_is_named_with_the_phase_that_grew():
    (slow,) = slow_steps(steps(9.0, 1.0, 1.0, 1.4, 2.0, 1.0))
    assert (slow.step, slow.seconds) == (5, 2.0)
    assert slow.usual == pytest.approx((1.0 + 1.4) / 2)  # of 9, 1, 1 and 1.4
    assert slow.phase == "update"


def test_the_phase_that_grew():
    rows = steps(1.0, 1.0, 1.0, 1.0, 4.0)
    rows[4] |= {"seconds/rollout": 3.6, "seconds/decode": 0.7, "seconds/update": 0.4}
    (slow,) = slow_steps(rows)
    assert (slow.phase, slow.phase_seconds) == ("other rollout", pytest.approx(2.9))
    assert slow.phase_usual == pytest.approx(0.1)


def test_a_run_that_has_become_slower_for_good():
    """From step 26 on twice as slow: named until half of the 20 steps before are slow too, and the median is 1.5."""
    assert [slow.step for slow in slow_steps(steps(*[1.0] * 25, *[2.0] * 25))] == list(range(26, 36))


def test_medians_leave_out_the_first_step():
    found = median_phases(steps(9.0, 1.0, 1.2, 1.4))
    assert found == pytest.approx({"step": 1.2, "decode": 0.5, "update": 0.6, "other rollout": 0.1})


def write_run(path: Path, rows: list[dict], late: bool = False) -> Path:
    path.mkdir()
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    entry = {"program": "<script>alert(1)</script>", "shapes": "(1, <b>2</b>)", "seconds": 2.5, "after_warm_up": late,
             "program_hash": "0"}  # fmt: skip
    (path / "ledger.jsonl").write_text(json.dumps(entry) + "\n")
    return path


def test_the_page_of_a_run(tmp_path):
    run = write_run(tmp_path / "a", steps(9.0, *[1.0] * 5, 2.0), late=True)
    assert Report((run,)).run() == 0
    page = (run / "report.html").read_text()
    assert "<script>" not in page
    assert "<b>" not in page
    assert '<tr class="marked"><td>&lt;script&gt;alert(1)&lt;/script&gt;</td>' in page
    assert re.search(
        r"<td>7</td><td>2\.000</td><td>1\.000</td><td>2\.0</td><td>update: 1\.400 s, else 0\.400 s</td>", page
    )
    assert page.count("<svg") == 2


def test_runs_beside_each_other(tmp_path):
    """The second takes 1.5 times as long, all of it in the update, whose median is .9 instead of .4 s."""
    before = write_run(tmp_path / "before", steps(5.0, 1.0, 1.0, 1.0))
    after = write_run(tmp_path / "after", steps(5.0, 1.5, 1.5, 1.5))
    assert Report((before, after), tmp_path / "both.html").run() == 0
    page = (tmp_path / "both.html").read_text()
    assert '<tr class="marked"><td>step</td><td>1.0000</td><td>1.5000</td><td>1.50</td></tr>' in page
    assert '<tr class="marked"><td>update</td><td>0.4000</td><td>0.9000</td><td>2.25</td></tr>' in page
    assert "<tr><td>decode</td><td>0.5000</td><td>0.5000</td><td>1.00</td></tr>" in page


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(InputError, match="holds no training run"):
        Report((tmp_path,)).run()
