import os
import signal
import struct
import threading
import time

import numpy as np
import psutil
import pytest

from vrjax.errors import VideoError
from vrjax.video import FrameOptions, ReaderPool, decoding, load_patches, plan_frames, probe, read_frames, to_patches
from vrjax.video.decoding import decode_frames, probe_file


@pytest.fixture(scope="module")
def pool():
    with ReaderPool(workers=1, time_limit_s=30) as pool:
        yield pool


@pytest.mark.parametrize("name", ["vfr.mkv", "vfr.mp4"])
def test_true_times_of_variable_rate(clips, name, variable_times):
    info = probe_file(clips / name)
    np.testing.assert_allclose(info.timestamps, variable_times / 1000, atol=1e-4)
    assert info.fps == pytest.approx(300 / info.duration, rel=1e-2)


@pytest.mark.parametrize("backend", ["decord", "av"])
@pytest.mark.parametrize("name", ["cfr.mp4", "vfr.mkv", "vfr.mp4"])
def test_frames_are_the_ones_asked_for(clips, name, backend, monkeypatch, frame_number):
    if backend == "av":
        monkeypatch.setattr(decoding, "_decord", lambda: None)
    else:
        pytest.importorskip("decord")
    info = probe_file(clips / name)
    rng = np.random.default_rng(1)
    for count in (1, 3, 20, info.total_frames):
        wanted = sorted(rng.integers(0, info.total_frames, count).tolist())
        got = [frame_number(frame) for frame in decode_frames(info.path, wanted, info.codec, info.total_frames)]
        assert got == wanted


def test_av1_is_read(tmp_path, write_clip, frame_number):
    path = write_clip(tmp_path / "a.mp4", range(20), codec="libsvtav1", height=128)
    info = probe_file(path)
    assert "av1" in info.codec or "dav1d" in info.codec
    assert [frame_number(f) for f in decode_frames(info.path, [0, 7, 19], info.codec, 20)] == [0, 7, 19]


@pytest.mark.parametrize("backend", ["decord", "av"])
def test_rotated_clips_come_upright(clips, tmp_path, backend, monkeypatch):
    """A quarter turn is written into the track header's matrix, as phones do; the picture must turn clockwise."""
    if backend == "av":
        monkeypatch.setattr(decoding, "_decord", lambda: None)
    else:
        pytest.importorskip("decord")
    content = bytearray((clips / "cfr.mp4").read_bytes())
    matrix = content.find(b"tkhd") + 4 + 40
    content[matrix : matrix + 36] = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
    (tmp_path / "turned.mp4").write_bytes(content)
    lying = next(decode_frames(str(clips / "cfr.mp4"), [37], "h264", 100))
    info = probe_file(tmp_path / "turned.mp4")
    assert (info.height, info.width) == (128, 96)
    upright = next(decode_frames(info.path, [37], info.codec, 100))
    assert np.abs(upright.astype(int) - lying[::-1].transpose(1, 0, 2)).max() <= 2


def test_isolated_and_in_process_agree(clips, pool, frame_number):
    options = FrameOptions(frames=6, start=1.0, end=3.0, min_pixels=784, max_pixels=100 * 784)
    plan = plan_frames(clips / "cfr.mp4", options, pool=pool)
    assert plan == plan_frames(clips / "cfr.mp4", options, isolated=False)
    frames = read_frames(plan, pool=pool)
    assert [frame_number(frame) for frame in frames] == list(plan.indices) == [25, 35, 45, 55, 65, 75]
    np.testing.assert_array_equal(frames, read_frames(plan, isolated=False))
    patches = load_patches(plan, pool=pool)
    assert patches.shape == (plan.patch_count, 1176)
    np.testing.assert_array_equal(patches, to_patches(frames))
    assert read_frames(plan, resized=False, pool=pool).shape == (6, 96, 128, 3)


def test_chunks_do_not_show(clips, monkeypatch):
    plan = plan_frames(clips / "cfr.mp4", FrameOptions(frames=10), isolated=False)
    whole = load_patches(plan, isolated=False)
    monkeypatch.setattr("vrjax.video.reader.CHUNK_BYTES", 1)
    np.testing.assert_array_equal(whole, load_patches(plan, isolated=False))


def test_pictures_with_a_clock(clips):
    options = FrameOptions(frames=4, frames_as_images=True, draw_clock=True)
    plan = plan_frames(clips / "cfr.mp4", options, isolated=False)
    frames = read_frames(plan, isolated=False)
    patches = load_patches(plan, isolated=False)
    assert len(patches) == plan.patch_count
    np.testing.assert_array_equal(patches, to_patches(np.repeat(frames, 2, axis=0)))


def test_a_process_of_its_own_for_one_call(clips):
    plan = plan_frames(clips / "cfr.mp4", FrameOptions(frames=2))
    np.testing.assert_array_equal(load_patches(plan), load_patches(plan, isolated=False))


def test_workers_are_renewed(clips):
    with ReaderPool(workers=1, time_limit_s=30, requests_per_worker=2) as pool:
        pids = set()
        for _ in range(4):
            probe(clips / "cfr.mp4", pool=pool)
            pids |= {worker.pid for worker in pool._places.queue if worker is not None}
    assert len(pids) == 2


def test_one_frame_is_given_twice(clips, pool):
    plan = plan_frames(clips / "one.mp4", pool=pool)
    assert plan.notes == ("frame_repeated",)
    frames = read_frames(plan, pool=pool)
    np.testing.assert_array_equal(frames[0], frames[1])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("none.mp4", "missing"),
        ("audio.mp4", "no_video_stream"),
        ("noindex.mp4", "truncated"),
        ("cut.mp4", "truncated"),
        ("cut.mkv", "truncated"),
        ("text.mp4", "unreadable"),
        ("empty.mp4", "empty"),
        ("", "not_a_file"),
    ],
)
def test_bad_files_have_a_kind_and_their_name(clips, pool, name, kind):
    with pytest.raises(VideoError) as caught:
        probe(clips / name, pool=pool)
    assert caught.value.kind == kind
    assert str(clips / name) in str(caught.value)


def test_a_pipe_is_never_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.mp4")
    start = time.monotonic()
    with pytest.raises(VideoError) as caught:
        plan_frames(tmp_path / "pipe.mp4")
    assert caught.value.kind == "not_a_file"
    assert time.monotonic() - start < 1


def test_changed_file_is_noticed(tmp_path, write_clip):
    path = write_clip(tmp_path / "a.mp4", range(10))
    plan = plan_frames(path, isolated=False)
    write_clip(path, range(12))
    with pytest.raises(VideoError) as caught:
        load_patches(plan, isolated=False)
    assert caught.value.kind == "changed"


def stop_worker(pool, number):
    """Send a signal to the pool's one idle process and return its id."""
    worker = pool._places.queue[0]
    os.kill(worker.pid, number)
    return worker.pid


def test_a_hanging_process_is_killed_and_replaced(clips):
    with ReaderPool(workers=1, time_limit_s=1.0) as pool:
        probe(clips / "cfr.mp4", pool=pool)
        pid = stop_worker(pool, signal.SIGSTOP)  # from here on it answers nothing
        start = time.monotonic()
        with pytest.raises(VideoError, match=r"cfr\.mp4") as caught:
            probe(clips / "cfr.mp4", pool=pool)
        assert caught.value.kind == "hang"
        assert 0.9 < time.monotonic() - start < 5
        assert not psutil.pid_exists(pid)
        assert pool.replaced["hang"] == 1
        assert probe(clips / "cfr.mp4", pool=pool).total_frames == 100


def test_a_crashed_process_is_replaced(clips):
    with ReaderPool(workers=1, time_limit_s=20) as pool:
        probe(clips / "cfr.mp4", pool=pool)
        stop_worker(pool, signal.SIGSEGV)
        with pytest.raises(VideoError) as caught:
            probe(clips / "cfr.mp4", pool=pool)
        assert caught.value.kind == "crash"
        assert probe(clips / "cfr.mp4", pool=pool).total_frames == 100


def test_closing_leaves_no_process(clips):
    with ReaderPool(workers=2, time_limit_s=30) as pool:
        threads = [threading.Thread(target=probe, args=(clips / "cfr.mp4",), kwargs={"pool": pool}) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pids = [worker.pid for worker in pool._places.queue if worker is not None]
    assert pids
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_reading_after_this_process_has_decoded(clips, pool):
    """A fork after decoding deadlocks in decord; fresh interpreters do not."""
    plan = plan_frames(clips / "cfr.mp4", isolated=False)
    here = load_patches(plan, isolated=False)
    np.testing.assert_array_equal(here, load_patches(plan, pool=pool))


def grown_mb(path, opens):
    """Growth of resident memory over `opens` openings, after 50 that warm up."""
    plan = plan_frames(path, FrameOptions(frames=2, min_pixels=784, max_pixels=20 * 784), isolated=False)
    process = psutil.Process()
    for number in range(opens + 50):
        if number == 50:
            before = process.memory_info().rss
        plan_frames(path, plan.options, isolated=False)
        load_patches(plan, isolated=False)
    return (process.memory_info().rss - before) / 2**20


def test_memory_is_flat_over_200_opens(clips):
    assert grown_mb(clips / "cfr.mp4", 200) < 20


@pytest.mark.slow
def test_memory_is_flat_over_1000_opens(clips):
    assert grown_mb(clips / "cfr.mp4", 1000) < 20
