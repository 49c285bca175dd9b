import json
import os

import pytest

from vrjax.commands.check_videos import CheckVideos
from vrjax.errors import InputError
from vrjax.video.inspection import KINDS, find_videos, inspect_files

WANT = {
    "cfr.mp4": "ok",
    "vfr.mkv": "ok",
    "vfr.mp4": "ok",
    "fast.mp4": "ok",
    "one.mp4": "one_frame",
    "audio.mp4": "no_video_stream",
    "cut.mp4": "truncated",
    "cut.mkv": "truncated",
    "noindex.mp4": "truncated",
    "text.mp4": "unreadable",
    "empty.mp4": "empty",
}


def test_every_kind_is_found(clips):
    results = {os.path.basename(r.path): r for r in inspect_files(find_videos([clips]), workers=1)}
    assert {name: result.kind for name, result in results.items()} == WANT
    for result in results.values():
        assert result.ok or (result.kind in KINDS and result.path in result.message)
    assert results["cfr.mp4"].frames == 100
    assert results["cfr.mp4"].seconds == pytest.approx(4.0)


def test_command(clips, tmp_path, capsys):
    assert CheckVideos((str(clips / "cfr.mp4"),), workers=1).run() == 0
    os.mkfifo(tmp_path / "pipe.mp4")
    capsys.readouterr()
    paths = (str(clips / "cfr.mp4"), str(tmp_path), str(tmp_path / "none.mp4"))
    assert CheckVideos(paths, json=True, workers=1).run() == 1
    out = json.loads(capsys.readouterr().out)
    assert out["counts"] == {"ok": 1, "not_a_file": 1, "missing": 1}
    assert [row["kind"] for row in out["files"]] == ["ok", "not_a_file", "missing"]


def test_bad_usage(tmp_path):
    with pytest.raises(InputError):
        CheckVideos(()).run()
    with pytest.raises(InputError):
        CheckVideos((str(tmp_path),)).run()
