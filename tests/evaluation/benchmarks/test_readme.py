"""The README's lines about benchmarks run as they stand."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.evaluation.benchmarks.scoring import FIXTURES

ROOT = Path(__file__).parents[3]


def test_scoring_a_submission(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "load_benchmark" in block]
    (tmp_path / "nextgqa").mkdir()
    (tmp_path / "submission").mkdir()
    for name in ("val.csv", "gsub_val.json", "map_vid_vidorID.json"):
        shutil.copy(FIXTURES / f"nextgqa_{name}", tmp_path / "nextgqa" / name)
    shutil.copy(FIXTURES / "nextgqa_pred_qa.json", tmp_path / "submission" / "val-res.json")
    shutil.copy(FIXTURES / "nextgqa_pred_ground.json", tmp_path / "submission" / "val_ground.json")
    probe = "import sys\n" + code + "assert 'jax' not in sys.modules\n"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("50.0 0.5 1.0 ")
