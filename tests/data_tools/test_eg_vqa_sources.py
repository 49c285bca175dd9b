"""Readers and curation: made-up files with every fault, and the real files, whose videos must all be accounted for."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from data_tools.cli import main
from data_tools.eg_vqa.curation import CurationRules, SegmentEdit, curate
from data_tools.eg_vqa.sources import join_sources, read_activitynet, read_hirest, read_youcook2
from vrjax.errors import InputError
from vrjax.records import VideoRecord, load_records

FIXTURES = Path(__file__).parent.parent / "fixtures"


def write(path: Path, content) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def captions(*segments, duration=100.0):
    return {"duration": duration, "timestamps": [s[0] for s in segments], "sentences": [s[1] for s in segments]}


def test_two_annotators_of_a_video_are_one_record_with_both_kept():
    found = read_activitynet([FIXTURES / "anet_val_1.json", FIXTURES / "anet_val_2.json"])
    assert [one.video_id for one in found.records] == ["v_AAAAAAAAAAA"]
    record = found.records[0].model_dump()
    assert [one["annotator"] for one in record["annotations"]] == ["1", "2"]
    assert record["provenance"] == {
        "source": "ActivityNet Captions", "files": ["anet_val_1.json", "anet_val_2.json"], "split": "val",
    }  # fmt: skip
    first = json.loads((FIXTURES / "anet_val_1.json").read_text())["v_AAAAAAAAAAA"]
    assert [list(one.timestamp) for one in found.records[0].metadata.segments] == first["timestamps"]
    assert [one.description for one in found.records[0].metadata.segments] == first["sentences"]


@pytest.mark.parametrize(("use", "number"), [("first", 1), ("second", 2), ("most_segments", 2), ("all", 3)])
def test_whose_segments_are_used(tmp_path, use, number):
    one = write(tmp_path / "1.json", {"v": captions(([0, 1], "a"))})
    two = write(tmp_path / "2.json", {"v": captions(([0, 1], "b"), ([1, 2], "c"))})
    assert len(read_activitynet([one, two], use).records[0].metadata.segments) == number


def test_both_forms_of_youcook2(tmp_path):
    official = read_youcook2(FIXTURES / "youcookii_annotations_trainval.json")
    record = official.records[0]
    assert (record.video_id, record.duration, len(record.metadata.segments)) == ("CCCCCCCCCCC", 241.62, 2)
    pdvc = write(tmp_path / "p.json", {
        "v_CCCCCCCCCCC": captions(
            ([90, 102], "rinse the beans"), ([114, 127], "add the beans to a pot"), duration=241.62
        )
    })  # fmt: skip
    again = read_youcook2(pdvc).records[0]
    assert (again.video_id, again.metadata) == (record.video_id, record.metadata)
    other = read_youcook2(FIXTURES / "youcookii_annotations_trainval.json", subset="training")
    assert [one["reason"] for one in other.removed] == ["other_subset"]


def test_hirest_placeholders_are_refused_and_test_steps_come_from_the_ground_truth():
    found = read_hirest(FIXTURES / "hirest_all_data_val.json")
    assert [one.video_id for one in found.records] == ["BBBBBBBBBBB"]
    assert found.records[0].metadata.title == "Make a Paper Kite"
    assert Counter(one["reason"] for one in found.removed) == {"unlabelled": 2}
    bare = read_hirest(FIXTURES / "hirest_all_data_test.json")
    assert (bare.records, [one["detail"] for one in bare.removed]) == ([], ["placeholder bounds"])
    truth = FIXTURES / "hirest_formatted_moment_evaluation_gt.json"
    labelled = read_hirest(FIXTURES / "hirest_all_data_test.json", truth)
    assert [one.timestamp for one in labelled.records[0].metadata.segments] == [(91, 96), (96, 99)]
    negative = read_hirest(FIXTURES / "hirest_all_data_test_negative_samples.json")
    assert [one["reason"] for one in negative.removed] == ["negative_sample"]
    with pytest.raises(InputError, match="not a video of hirest_all_data_val"):
        read_hirest(FIXTURES / "hirest_all_data_val.json", truth)


def test_a_video_of_two_sources_stays_once_and_is_named(tmp_path):
    a = read_activitynet([write(tmp_path / "a.json", {"v_CCCCCCCCCCC": captions(([0, 1], "x"))})])
    joined = join_sources([a, read_youcook2(FIXTURES / "youcookii_annotations_trainval.json")])
    assert [one.data_source for one in joined.records] == ["ActivityNet Captions"]
    assert (joined.removed[0]["reason"], joined.removed[0]["detail"]) == (
        "duplicate_id",
        "also in ActivityNet Captions",
    )


@pytest.mark.parametrize("duration", [None, 0, -3, "60"])
def test_a_video_without_a_duration_is_a_named_removal(tmp_path, duration):
    found = read_activitynet([write(tmp_path / "a.json", {"v": captions(([0, 1], "x"), duration=duration)})])
    assert (found.records, found.removed[0]["reason"]) == ([], "no_duration")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"v": {"duration": 3, "timestamps": [[0, 1]], "sentences": []}}', "1 timestamps and 0 sentences"),
        ('{"v": {"duration": 3, "timestamps": [[0]], "sentences": ["x"]}}', "segment 0"),
        ('{"v": {"duration": 3, "timestamps": [[0, NaN]], "sentences": ["x"]}}', "segment 0"),
        ('{"v": {"duration": 3, "timestamps": [[0, 1]], "sentences": [7]}}', "description is no text"),
        ('{"v": {"duration": 3}, "v": {"duration": 4}}', "'v' occurs twice"),
        ("[]", "expected an object"),
        ('{"v": [', "is not JSON"),
    ],
)
def test_a_bad_file_names_file_and_place_and_is_exit_code_2(capsys, tmp_path, text, said):
    (tmp_path / "a.json").write_text(text)
    code = main(["eg-vqa", "read", "--work", str(tmp_path), "--activitynet", str(tmp_path / "a.json")])
    error = capsys.readouterr().err
    assert (code, said in error, "a.json" in error) == (2, True, True)


def test_text_that_is_not_utf_8_is_named(capsys, tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"v": "\xff"}')
    assert main(["eg-vqa", "read", "--work", str(tmp_path), "--activitynet", str(tmp_path / "a.json")]) == 2
    assert "is not UTF-8" in capsys.readouterr().err


def record(*segments, video="v", duration=100.0) -> VideoRecord:
    return VideoRecord.model_validate({
        "video_id": video, "video_path": "v.mp4", "duration": duration, "data_source": "s",
        "metadata": {"segments": [{"timestamp": s[0], "description": s[1]} for s in segments]},
    })  # fmt: skip


GOOD = (([0, 10], "one"), ([10, 20], "two"), ([20, 30], "three"))
# segment → what is left of it, and the rules that changed it
CASES = [
    (([5, 5], "x"), None, ["zero_length"]),
    (([9, 4], " a  b "), ((4, 9), "a b"), ["strip_text", "swap_reversed"]),
    (([90, 120], "x"), ((90, 100), "x"), ["cut_to_duration"]),
    (([-2, 4], "x"), ((0, 4), "x"), ["cut_to_duration"]),
    (([100, 120], "x"), None, ["outside_the_video"]),
    (([130, 120], "x"), None, ["swap_reversed", "outside_the_video"]),
    (([-5, 0], "x"), None, ["outside_the_video"]),
    (([1, 2], "  "), None, ["strip_text", "empty_text"]),
    (([1, 2], "…"), None, ["empty_text"]),
    (([0, 10], "one "), None, ["strip_text", "repeated"]),
    (([0, 50], "nested"), ((0, 50), "nested"), []),
]


@pytest.mark.parametrize(("segment", "left", "rules"), CASES)
def test_each_fault_of_a_segment_has_its_rule(segment, left, rules):
    found = curate([record(*GOOD, segment)], CurationRules())
    segments = [(one.timestamp, one.description) for one in found.records[0].metadata.segments]
    wanted = [(tuple(times), text) for times, text in GOOD] + ([left] if left else [])
    assert segments == sorted(wanted)
    assert [one["rule"] for one in found.corrections] == rules
    assert all(one["segment"] == 3 for one in found.corrections)
    if rules:
        assert found.corrections[0]["before"]["timestamp"] == list(map(float, segment[0]))
        assert (found.corrections[-1]["after"] is None) == (left is None)


def test_rules_can_be_turned_off():
    rules = CurationRules(strip_text=False, sort_by_time=False, drop_repeated=False, cut_to_duration=False)
    found = curate([record(*reversed(GOOD), ([0, 10], "one"), ([90, 120], "x"), ([1, 2], " y"))], rules)
    assert [one.description for one in found.records[0].metadata.segments] == ["three", "two", "one", "one", " y"]
    assert [one["rule"] for one in found.corrections] == ["outside_the_video"]


def test_videos_with_few_events_are_left_out_by_name():
    few = record(([0, 1], "One."), ([1, 2], "one"), ([2, 3], "two"), video="few")
    repeated = record(*[([n, n + 1], f"step {n % 3}") for n in range(9)], video="repeated")
    empty = record(([3, 3], "x"), video="empty")
    found = curate(
        [few, repeated, empty, record(*GOOD), record(*GOOD, video="bad")], CurationRules(), None, {"bad": "gone"}
    )
    assert [one.video_id for one in found.records] == ["v"]
    assert {one["video_id"]: one["reason"] for one in found.removed} == {
        "few": "few_events", "repeated": "repeated_events", "empty": "no_segments", "bad": "unreadable",
    }  # fmt: skip


def test_edits_of_people_come_first_and_are_logged():
    edits = {"v": [
        SegmentEdit(video_id="v", segment=0, timestamp=(2, 120), description="uno", editor="ann"),
        SegmentEdit(video_id="v", segment=1, drop=True),
    ]}  # fmt: skip
    found = curate([record(*GOOD, ([40, 50], "four"))], CurationRules(), edits)
    first = found.records[0].metadata.segments[0]
    assert (first.timestamp, first.description) == ((2.0, 100.0), "uno")
    assert [(one["segment"], one["rule"]) for one in found.corrections] == [
        (0, "edited by ann"), (0, "cut_to_duration"), (1, "edited"),
    ]  # fmt: skip


def test_an_edit_of_a_segment_that_is_not_there_is_refused(capsys, tmp_path):
    fixture = str(FIXTURES / "youcookii_annotations_trainval.json")
    assert main(["eg-vqa", "read", "--work", str(tmp_path), "--youcook2", fixture]) == 0
    write(tmp_path / "edits.jsonl", {"video_id": "CCCCCCCCCCC", "segment": 2, "drop": True})
    assert main(["eg-vqa", "curate", "--work", str(tmp_path), "--edits", str(tmp_path / "edits.jsonl")]) == 2
    assert "has no segment 2" in capsys.readouterr().err


REALDATA = os.environ.get("VRJAX_REALDATA")


@pytest.mark.skipif(not REALDATA, reason="VRJAX_REALDATA names no folder")
def test_every_real_video_is_a_record_or_a_named_removal(capsys, tmp_path):
    data = Path(REALDATA or "")
    anet = [data / "activitynet_captions" / name for name in ("val_1.json", "val_2.json")]
    hirest = [data / "hirest" / f"all_data_{name}.json" for name in ("val", "test")]
    truth = data / "hirest" / "formatted_moment_evaluation_gt.json"
    words = ["read", "--work", tmp_path, "--activitynet", *anet, "--youcook2", data / "youcook2" / "yc2_val_pdvc.json",
             "--hirest-val", hirest[0], "--hirest-test", hirest[1], "--hirest-ground-truth", truth]  # fmt: skip
    assert main(["eg-vqa", *map(str, words)]) == 0
    raw = load_records(tmp_path / "raw.jsonl")
    removed = [json.loads(line) for line in (tmp_path / "raw_removed.jsonl").read_text().splitlines()]
    assert Counter(one.data_source for one in raw) == {"ActivityNet Captions": 4917, "YouCook2": 457, "HiREST": 585}
    assert len(raw) + len(removed) == 4917 + 457 + 477 + 1391
    unlabelled = {one["video_id"] for one in removed if one["reason"] == "unlabelled"}
    tests = {name.removesuffix(".mp4") for videos in json.loads(hirest[1].read_text()).values() for name in videos}
    assert len(unlabelled & tests) == 884
    both = [one for one in raw if len(one.model_dump().get("annotations", ())) == 2]
    assert len(both) == 4885
    assert main(["eg-vqa", "curate", "--work", str(tmp_path)]) == 0
    kept = load_records(tmp_path / "records.jsonl")
    gone = [json.loads(line) for line in (tmp_path / "removed.jsonl").read_text().splitlines()]
    assert len(kept) + len(gone) == len(raw)
    assert not {one.video_id for one in kept} & {one["video_id"] for one in gone}
    for one in kept:
        assert all(0 <= s.start < s.end <= one.duration and s.description.strip() for s in one.metadata.segments)
