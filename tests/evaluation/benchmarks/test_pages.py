"""What benchmarks say of themselves to the page and to comparisons, on files in their official form."""

import json

from tests.evaluation.benchmarks.scoring import FIXTURES
from vrjax.evaluation.benchmark import Tools
from vrjax.evaluation.benchmarks import load_benchmark
from vrjax.evaluation.result_files import load_scored_run
from vrjax.evaluation.submissions import score_submissions


def test_choices_and_windows_are_shown(tmp_path):
    data, file = FIXTURES / "rextime_val.jsonl", FIXTURES / "rextime_submission.jsonl"
    score_submissions(load_benchmark("rextime")(), data, [file], Tools(), out=tmp_path)
    run = load_scored_run(tmp_path)
    assert run.scores["table"] == {name: run.scores["official"][name] for name in
                                   ("mIoU", "R1@0.3", "R1@0.5", "Acc", "Acc@IoU0.5")}  # fmt: skip
    page = (tmp_path / "report.html").read_text()
    rows = json.loads(page.split('<script type="application/json" id="data">')[1].split("</script>")[0])["rows"]
    assert [row["verdict"] for row in rows] == ["right"] * 3
    by_iou = {row["id"]: row.get("ungrounded", False) for row in rows}
    assert by_iou == {row["id"]: row["values"]["mIoU"] < 0.5 for row in run.rows}
    assert all(row["true"] and row["said"] and row["answer"][:2] == row["reference"][:2] for row in rows)
    assert all(row["options"] for row in rows)
