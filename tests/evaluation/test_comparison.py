"""Runs beside each other: the tests against other implementations, the items that changed, what cannot be compared."""

import json
from itertools import product

import numpy as np
import pytest
from scipy.stats import permutation_test

from vrjax.cli import main
from vrjax.errors import InputError
from vrjax.evaluation.comparison import compare_runs
from vrjax.evaluation.intervals import clustered_interval
from vrjax.evaluation.paired_test import sign_flip_p
from vrjax.run_directory import RunDirectory


def test_few_videos_are_tested_exactly():
    rng = np.random.default_rng(0)
    for _ in range(20):
        clusters = rng.integers(6, size=25).tolist()
        gains = rng.choice([-1.0, 0.0, 1.0, 0.5], 25).tolist()
        sums = [sum(gain for gain, one in zip(gains, clusters, strict=True) if one == cluster)
                for cluster in sorted(set(clusters))]  # fmt: skip
        flips = [abs(sum(sign * value for sign, value in zip(signs, sums, strict=True)))
                 for signs in product((1, -1), repeat=len(sums))]  # fmt: skip
        wanted = np.mean([flip >= abs(sum(sums)) - 1e-9 for flip in flips])
        assert sign_flip_p(gains, clusters) == pytest.approx(wanted)


def test_many_videos_agree_with_scipy():
    gains = np.random.default_rng(1).normal(0.12, 1, 200)
    wanted = permutation_test(
        (gains, np.zeros(200)), lambda a, b, axis: np.mean(a - b, axis=axis), permutation_type="samples",
        vectorized=True, n_resamples=20_000, rng=np.random.default_rng(2),
    ).pvalue  # fmt: skip
    assert sign_flip_p(gains.tolist(), range(200)) == pytest.approx(wanted, abs=0.015)


def test_no_difference_and_a_clear_one():
    assert sign_flip_p([0.0] * 5, range(5)) == 1
    assert sign_flip_p([], []) == 1
    assert sign_flip_p([1.0] * 10, range(10)) == pytest.approx(2 / 2**10)
    assert sign_flip_p([1.0] * 1000, range(1000)) == pytest.approx(1 / 20_001)
    # 40 questions about one video are one draw
    assert sign_flip_p([1.0] * 40, ["v"] * 40) == 1
    with pytest.raises(ValueError, match="one cluster for each"):
        sign_flip_p([1.0], [])


def write_run(folder, values: dict[str, float | None], benchmark="eg_vqa", **config):
    rows = [
        {
            "id": name,
            "video": name.split("_")[0],
            "types": ["causal" if name.endswith("1") else "temporal"],
            "question": f"What of {name}?",
            "options": {},
            "duration": 9.0,
            "reference": {"answer": "green"},
            "text": "said",
            "error": None,
            "parsed": {"answer": f"in {folder.name}"},
            "values": {"right": value, "other": 0.5},
            "failure": None,
            "notes": {},
        }
        for name, value in values.items()
    ]
    known = [value for value in values.values() if value is not None]
    mean = sum(known) / len(known)
    interval = {"mean": mean, "low": 0.0, "high": 1.0}
    half = {"mean": 0.5, "low": 0.5, "high": 0.5}
    scores = {
        "benchmark": benchmark, "subject": "a model", "n": len(rows), "headline": "right", "answering": "right",
        "grounding": ["other", 0.1], "table": {"Acc": 100 * mean}, "official": {"right": 100 * mean},
        "strict": {"right": mean, "other": 0.5}, "intervals": {"right": interval, "other": half},
        "coverage": 1.0, "by_type": {}, "prompt": {"name": "p", "version": 1},
    }  # fmt: skip
    run = RunDirectory(folder)
    run.write_json("scores.json", scores)
    run.write_text("items.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    if config:
        run.write_json("config.json", config)
    return folder


@pytest.fixture
def two(tmp_path):
    names = [f"v{n // 2}_{n % 2}" for n in range(20)]
    before = {name: float(n % 2) for n, name in enumerate(names)}
    after = {**before, "v0_0": 1.0, "v1_0": 1.0, "v2_1": 0.5, "v3_1": None, "extra_1": 1.0}
    return (
        write_run(tmp_path / "first", before, seed=0, weights="a", data="x"),
        write_run(tmp_path / "second", after, seed=0, weights="b", data="y"),
    )


def test_differences_are_paired_by_id(two):
    found = compare_runs(two)
    assert (found["compared"], found["left_out"]) == (20, {"first": 0, "second": 1})
    (pair,) = found["pairs"]
    row = pair["metrics"]["right"]
    assert row["n"] == 19  # one has no value in the second run
    assert row["first"] == pytest.approx(9 / 19)
    assert row["difference"]["mean"] == pytest.approx((1 + 1 - 0.5) / 19)
    gains = [0.0] * 19
    gains[0], gains[2], gains[5] = 1.0, 1.0, -0.5
    clusters = [f"v{n // 2}" for n in range(20) if n != 7]
    again = clustered_interval(gains, clusters)
    assert (row["difference"]["low"], row["difference"]["high"]) == pytest.approx((again.low, again.high))
    assert row["p"] == sign_flip_p(gains, clusters) == 0.5  # |±1 ±1 ±.5| ≥ 1.5 in four of eight
    assert pair["metrics"]["other"]["difference"]["mean"] == 0
    assert pair["by_type"]["temporal"]["right"]["n"] == 10
    assert pair["by_type"]["temporal"]["right"]["difference"]["mean"] == pytest.approx(0.2)
    assert pair["settings"] == {"weights": ["a", "b"]}


def test_items_that_changed_are_listed_the_most_changed_first(two):
    changed = compare_runs(two)["pairs"][0]["changed"]
    assert [(row["id"], row["verdicts"]) for row in changed] == [
        ("v0_0", ["wrong", "right"]), ("v1_0", ["wrong", "right"]), ("v3_1", ["right", "unscored"]),
        ("v2_1", ["right", "partly"]),
    ]  # fmt: skip
    assert changed[0]["answers"] == ["in first", "in second"]


def test_the_command_prints_tables_json_and_a_page(two, tmp_path, capsys):
    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(["compare", *map(str, words)])
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    code, out, _ = run(*two, "--json", "--metrics", "right")
    assert code == 0
    assert list(json.loads(out)["pairs"][0]["metrics"]) == ["right"]
    code, out, _ = run(*two, "--out", tmp_path / "page.html")
    assert code == 0
    assert "wrong → right: 2" in out
    assert "+0.0789" in out
    page = (tmp_path / "page.html").read_text()
    assert "Answers against grounding" in page
    assert "<svg" in page
    for words, message in (
        ((two[0],), "nothing to compare"),
        ((two[0], two[0]), "named twice"),
        ((two[0], tmp_path / "nowhere"), "holds no scores.json"),
        ((*two, "--metrics", "gas"), "'gas' is no metric of all these runs. Choose from: right, other"),
    ):
        code, _, err = run(*words)
        assert (code, message in err) == (2, True), err


def test_what_cannot_be_compared(two, tmp_path):
    other = write_run(tmp_path / "third", {"v0_0": 1.0}, benchmark="lvbench")
    with pytest.raises(InputError, match=r"different benchmarks \(eg_vqa, lvbench\)"):
        compare_runs([two[0], other])
    strange = write_run(tmp_path / "fourth", {"w_0": 1.0})
    with pytest.raises(InputError, match="no questions in common"):
        compare_runs([two[0], strange])
    (strange / "scores.json").write_text("{}")
    with pytest.raises(InputError, match=r"scores\.json: benchmark is not there"):
        compare_runs([two[0], strange])


def test_runs_of_one_name_are_told_apart(tmp_path):
    runs = [write_run(tmp_path / place / "eval", {"v_0": 1.0}) for place in ("a", "b")]
    assert [run["name"] for run in compare_runs(runs)["runs"]] == ["a/eval", "b/eval"]
