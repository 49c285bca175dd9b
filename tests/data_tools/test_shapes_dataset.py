"""Sets of clips: reproducible, split by video, hard to guess; coarse labels."""

import json
import subprocess
import sys

import pytest

from data_tools.shapes.coarse_labels import coarse_labels
from data_tools.shapes.dataset import DatasetOptions, clip_record, clip_script, make_dataset
from data_tools.shapes.question_only import ceilings, span_f1, template
from vrjax.errors import InputError
from vrjax.records import load_records

OPTIONS = DatasetOptions(train=6, val=2, test=3, seed=11)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    assert make_dataset(folder, OPTIONS)
    return folder


@pytest.fixture(scope="module")
def records():
    options = DatasetOptions(train=800, val=0, test=300, seed=5)
    return {
        split: [clip_record(options, split, n) for n in range(getattr(options, split))] for split in ("train", "test")
    }


def test_two_workers_make_the_same_bytes(made, tmp_path):
    steps = []
    assert make_dataset(tmp_path, OPTIONS, workers=2, progress=lambda done, total: steps.append((done, total)))
    assert contents(tmp_path) == contents(made)
    assert steps == [(done, 11) for done in range(1, 12)]


def test_another_seed_makes_other_clips(made, tmp_path):
    make_dataset(tmp_path, DatasetOptions(train=1, val=0, test=0, seed=12))
    assert (tmp_path / "videos/shapes_s12_train_00000.mp4").read_bytes() != (
        made / "videos/shapes_s11_train_00000.mp4"
    ).read_bytes()


def test_a_complete_set_is_left_alone_and_a_cut_one_goes_on(made, tmp_path):
    assert not make_dataset(made, OPTIONS)
    make_dataset(tmp_path, OPTIONS)
    whole = contents(tmp_path)
    (tmp_path / "videos/shapes_s11_test_00001.mp4").unlink()
    (tmp_path / "train.json").unlink()
    kept = tmp_path / "videos/shapes_s11_test_00000.mp4"
    before = kept.stat().st_mtime_ns
    assert make_dataset(tmp_path, OPTIONS)
    assert contents(tmp_path) == whole
    assert kept.stat().st_mtime_ns == before


def test_a_folder_with_something_else_is_refused(made, tmp_path):
    with pytest.raises(InputError, match="other options"):
        make_dataset(made, DatasetOptions(train=6, val=2, test=3, seed=12))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        make_dataset(tmp_path, OPTIONS)
    with pytest.raises(InputError, match="at least one clip"):
        DatasetOptions(train=0, val=0, test=0)


def test_files_pass_the_schema_and_splits_share_no_video(made):
    splits = {split: load_records(made / f"{split}.json") for split in ("train", "val", "test")}
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 6, "val": 2, "test": 3}
    videos = [(made / row.video_path).read_bytes() for rows in splits.values() for row in rows]
    assert len(set(videos)) == 11
    options = DatasetOptions(train=500, val=0, test=200, seed=11)
    stories = {
        split: {clip_script(options, split, n) for n in range(getattr(options, split))} for split in ("train", "test")
    }
    assert not stories["train"] & stories["test"]


def test_evidence_is_a_subset_of_the_segments_inside_the_clip(records):
    for record in records["train"] + records["test"]:
        assert record.data_source == "shapes"
        assert [question.type for question in record.questions] == [
            "descriptive",
            "temporal",
            "causal",
            "counterfactual",
        ]
        for question in record.questions:
            assert 1 <= len(question.evidence) <= 2
            assert set(question.evidence) <= set(record.metadata.segments)
            starts = [text.start for text in question.evidence]
            assert starts == sorted(starts)
            for text in question.evidence:
                assert 0 <= text.start < text.end <= record.duration
                assert text.timestamp == (int(text.start), int(text.end))


def test_the_question_alone_gives_little_away(records):
    found = ceilings(records["train"], records["test"])
    for guess in found.values():
        assert guess["all"].answer <= 0.28
        assert guess["all"].soft_eg_f1 <= 0.27  # as if every description were right
        assert guess["descriptive"].answer <= 0.32
        assert guess["temporal"].answer <= 0.2
        assert guess["causal"].answer <= 0.25
        assert guess["counterfactual"].answer <= 0.48


def test_answers_are_balanced(records):
    answers = [q.answer for row in records["train"] for q in row.questions if q.type == "counterfactual"]
    yes, no = answers.count("yes"), answers.count("no")
    assert abs(yes - no) < 4 * (yes + no) ** 0.5
    for colour in ("red", "green", "blue", "yellow"):
        assert 0.17 < answers.count(colour) / (len(answers) - yes - no) < 0.33


@pytest.mark.parametrize(
    ("predicted", "reference", "want"),
    [
        ([(0, 2)], [(0, 2)], 1.0),
        ([(0, 2)], [(1, 3)], 1 / 3),
        ([(0, 2)], [(0, 2), (4, 6)], 2 / 3),
        ([(4, 6), (0, 2)], [(0, 2), (4, 6)], 1.0),
        ([(0, 2), (1, 3)], [(0, 2)], 2 / 3),
        ([], [(0, 2)], 0.0),
    ],
)
def test_span_f1_by_hand(predicted, reference, want):
    assert span_f1(predicted, reference) == pytest.approx(want)


def test_templates_mask_the_words_that_name_figures():
    assert template("Which shape acts right after the red circle slides?") == (
        "Which shape acts right after the COLOUR KIND VERB?"
    )


def test_coarse_labels_widen_about_the_stated_share_and_stay_inside(records):
    sharp, coarse = records["train"], coarse_labels(records["train"], seed=1)
    moved = {True: 0, False: 0}
    for before, after in zip(sharp, coarse, strict=True):
        for old, new in zip(before.metadata.segments, after.metadata.segments, strict=True):
            assert new.start in (old.start, max(0.0, old.start - 1))
            assert new.end in (old.end, min(before.duration, old.end + 1))
            assert new.description == old.description
            if old.start >= 1:
                moved[new.start < old.start] += 1
        segments = set(after.metadata.segments)
        assert all(set(question.evidence) <= segments for question in after.questions)
    assert moved[True] / sum(moved.values()) == pytest.approx(0.7, abs=0.04)
    assert coarse_labels(sharp[::-1], seed=1)[::-1] == coarse
    assert coarse_labels(sharp, seed=2) != coarse
    assert coarse_labels(sharp, seed=1, probability=0) == sharp
    with pytest.raises(InputError, match="probability"):
        coarse_labels(sharp, seed=1, probability=1.5)


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "data_tools.cli", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_the_command_makes_a_set_and_says_what_guessing_gets(tmp_path):
    small = [
        "shapes",
        "--out",
        str(tmp_path / "set"),
        "--clips",
        "4",
        "--val-clips",
        "0",
        "--test-clips",
        "2",
        "--json",
    ]
    done = command(*small, "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["question_only"]["template"]["all"]["questions"] == 8
    assert len(load_records(tmp_path / "set/train.json")) == 4
    other = command(*small, "--seed", "1")
    assert other.returncode == 2
    assert "other options" in other.stderr
    assert "Traceback" not in other.stderr


def test_help_and_bad_usage(capsys):
    from data_tools.cli import main

    assert main(["--help"]) == 0
    assert "shapes" in capsys.readouterr().out
    assert main(["sharpes"]) == 2
    assert "unknown command 'sharpes'" in capsys.readouterr().err
    assert main([]) == 2
