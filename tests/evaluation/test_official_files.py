"""Finding, checking and writing files, and what their messages name."""

import os

import pytest

from vrjax.errors import InputError, RunError
from vrjax.evaluation.official_files import find, look_for, names, read_ids, write_whole, youtube_id
from vrjax.records import load_json


def test_a_file_is_found_under_its_name_or_with_a_prefix(tmp_path):
    (tmp_path / "set_val.csv").write_text("x")
    assert find(tmp_path, "val.csv") == tmp_path / "set_val.csv"
    (tmp_path / "val.csv").write_text("x")
    assert find(tmp_path / "set_val.csv", "test.csv", "val.csv") == tmp_path / "val.csv"
    assert look_for(tmp_path, "test.csv") is None
    with pytest.raises(InputError, match=r"no a\.json or b\.json there"):
        find(tmp_path, "a.json", "b.json")
    (tmp_path / "val.csv").unlink()
    (tmp_path / "other_val.csv").write_text("x")
    with pytest.raises(InputError, match=r"several files fit val\.csv: other_val\.csv, set_val\.csv"):
        find(tmp_path, "val.csv")


def test_a_key_that_is_given_twice(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"a": 1, "b": {"c": 1, "c": 2}}')
    assert load_json(path) == {"a": 1, "b": {"c": 2}}
    with pytest.raises(InputError, match=r"x\.json: the key 'c' occurs twice"):
        load_json(path, unique_keys=True)
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{"a": 1, "a": 1}\n')
    with pytest.raises(InputError, match="the key 'a' occurs twice"):
        load_json(path, unique_keys=True)


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("v_ZMTi498qnPc", "ZMTi498qnPc"),
        ("2I9-kvemtSU_510.0_660.0", "2I9-kvemtSU"),
        ("QWowpe84rXw", "QWowpe84rXw"),
        ("v_abcdefghi", "v_abcdefghi"),
        ("movie.mp4", "movie.mp4"),
    ],
)
def test_youtube_ids(name, bare):
    assert youtube_id(name) == bare


def test_lists_of_ids(tmp_path):
    (tmp_path / "a.txt").write_text("x\n\n y \r\n")
    assert read_ids(tmp_path / "a.txt") == {"x", "y"}
    (tmp_path / "b.txt").write_text("\n")
    with pytest.raises(InputError, match="holds no ids"):
        read_ids(tmp_path / "b.txt")
    with pytest.raises(InputError, match="cannot be read as a list of ids"):
        read_ids(tmp_path / "c.txt")


def test_names():
    assert names(["a", "b"]) == "a, b"
    assert names(list("abcdefg")) == "a, b, c, d, e and 2 more"


def test_files_are_written_together_or_not_at_all(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    write_whole({first: "1", second: "2"})
    assert (first.read_text(), second.read_text()) == ("1", "2")
    real = os.fsync
    calls = []

    def full_disk(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(RunError, match=r"first, .*second: cannot be written \(No space left on device\)"):
        write_whole({first: "3", second: "4"})
    assert (first.read_text(), second.read_text()) == ("1", "2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]
