"""The review page in Chromium, as raters use it. The server is a process that may be killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from data_tools.cli import main
from data_tools.review.store import ReviewStore
from data_tools.shapes.encode import encode_mp4
from tests.browser import chromium
from tests.data_tools.review_rows import EVIL, queue_row, segments
from vrjax.records import load_json

pytest.importorskip("gradio")
pytestmark = pytest.mark.slow
ITEMS = 40


class Server:
    """`review serve` as a process at one port, to be killed and started again."""

    def __init__(self, database: Path, videos: Path | None, password: str | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.words = ["--database", str(database), "--port", str(self.port)]
        self.words += ["--videos", str(videos)] if videos else []
        self.environment = os.environ | ({"REVIEW_PASSWORD": password} if password else {})
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "data_tools.cli", "review", "serve", *self.words]
        self.process = subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError(self.process.communicate()[1])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=30)


@contextmanager
def serving(*arguments, **options):
    server = Server(*arguments, **options)
    try:
        yield server
    finally:
        server.stop()


def write_video(path: Path, seconds: int = 8) -> None:
    frames = np.random.default_rng(0).integers(0, 255, (5 * seconds, 64, 96, 3), np.uint8)
    encode_mp4(frames, path, fps=5)


def add(database: Path, task: str, path: Path, *words: str) -> None:
    command = ["review", "add", "--database", str(database), "--task", task, "--files", str(path), *words]
    assert main(command) == 0


def enter(page, server: Server, name: str) -> None:
    page.goto(server.url)
    page.fill("#rv-name", name)
    page.click("text=Start")
    page.wait_for_selector(".rv-main:visible, .rv-status.good")


def shown(page) -> str:
    """The question of the item on the page; empty where there is none."""
    return page.evaluate(
        "document.querySelector('.rv-main').hidden ? '' : document.querySelector('.rv-form textarea').value"
    )


def decide(page, key: str) -> None:
    """Press a key and wait until the item is saved and another, or none, is shown."""
    page.evaluate("document.querySelector('.rv-form').dataset.old = 'yes'")
    page.keyboard.press(key)
    page.wait_for_function(
        "document.querySelector('.rv-main').hidden || !document.querySelector('.rv-form').dataset.old", timeout=30_000
    )


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


def test_two_raters_at_once_a_killed_server_and_no_decision_lost_or_doubled(browser, tmp_path, capsys):
    """Forty items, a person at each of two browsers in turn; the server is killed while an answer is on its way."""
    (tmp_path / "videos").mkdir()
    write_video(tmp_path / "videos" / "clip.mp4")
    rows = [queue_row(n, text=EVIL if n == 7 else "") for n in range(ITEMS)]
    queue = tmp_path / "queue.jsonl"
    queue.write_text("".join(json.dumps(row) + "\n" for row in rows))
    database = tmp_path / "review.sqlite"
    add(database, "adjudicate", queue)
    said: dict[str, tuple[str, str]] = {}
    with serving(database, tmp_path / "videos") as server:
        pages, outside = {}, []
        for name in ("ann", "bob"):
            page = browser.new_context().new_page()
            page.on("request", lambda request: outside.append(request.url))
            enter(page, server, name)
            pages[name] = page
        turn = 0
        while any(shown(page) for page in pages.values()):
            for name, page in pages.items():
                if not (question := shown(page)):
                    continue
                number = int(question.split()[1].rstrip("?"))
                assert f"q{number:03d}" not in said  # nobody is shown what was decided
                key = "r" if number % 3 == 0 else "a"
                if turn == 15:
                    # The answer is sent to a dead server, which comes back; then the same between saving and replying.
                    server.kill()
                    page.keyboard.press(key)
                    page.wait_for_selector(".rv-status.bad")
                    assert "does not answer" in page.inner_text(".rv-status")
                    server.start()
                    page.wait_for_function(
                        f"!document.querySelector('.rv-form textarea').value.startsWith('Why {number}?')"
                    )
                elif turn == 22:
                    page.route("**/review/save", lambda route: (route.fetch(), route.abort()), times=1)
                    decide(page, key)
                elif turn == 25:
                    # A reload with an unsent edit: the draft is there, and the item is still this rater's.
                    page.fill(".rv-form textarea >> nth=0", f"Why {number}? Edited")
                    page.keyboard.press("Escape")
                    page.reload()
                    page.wait_for_selector(".rv-form")
                    assert shown(page) == f"Why {number}? Edited"
                    decide(page, key)
                else:
                    decide(page, key)
                said[f"q{number:03d}"] = (name, {"a": "accept", "r": "reject"}[key])
                turn += 1
        assert all(page.title() == "vrjax review" for page in pages.values())  # the hostile text stayed text
        assert {url.split("/")[2] for url in outside if not url.startswith(("data:", "blob:"))} == {
            server.url.split("/")[2]
        }
        for page in pages.values():
            page.context.close()
    assert len(said) == ITEMS
    assert Counter(name for name, _ in said.values()).keys() == {"ann", "bob"}
    assert main(["review", "export", "--database", str(database), "--out", str(tmp_path / "out"), "--json"]) == 0
    exported = load_json(tmp_path / "out" / "decisions.jsonl")
    assert {row["question_id"]: (row["raters"][0], row["decision"]) for row in exported} == said
    assert len(exported) == ITEMS
    assert [len(row["raters"]) for row in exported] == [1] * ITEMS
    assert len(load_json(tmp_path / "out" / "log.jsonl")) == ITEMS
    edited = [row for row in exported if "question" in row]
    assert len(edited) <= 1  # the reloaded one, where it was accepted
    assert load_json(tmp_path / "out" / "undecided.jsonl") == []


def test_evidence_is_dragged_typed_added_and_the_video_follows(browser, tmp_path):
    (tmp_path / "videos").mkdir()
    write_video(tmp_path / "videos" / "clip.mp4")
    row = queue_row(0)
    row["duration"] = 8.0
    row["segments"] = [{"timestamp": [2.0 * n, 2.0 * n + 1.5], "description": f"step {n}"} for n in range(4)]
    row["question"]["evidence"] = row["segments"][1:3]
    (tmp_path / "queue.jsonl").write_text(json.dumps(row) + "\n")
    add(tmp_path / "review.sqlite", "adjudicate", tmp_path / "queue.jsonl")
    with serving(tmp_path / "review.sqlite", tmp_path / "videos") as server:
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        enter(page, server, "ann")
        page.wait_for_function("document.querySelector('video').readyState >= 1")
        page.click("button[aria-label='play 2']")
        page.wait_for_function("document.querySelector('video').currentTime >= 4")
        page.keyboard.press("1")
        page.wait_for_function("Math.abs(document.querySelector('video').currentTime - 2) < 1.6")
        # Drag the end of the first piece to 5.0 s, which is no edge of a segment; 8 s are as wide as the track.
        track = page.locator(".rv-track").bounding_box()
        handle = page.locator("[data-index='0'] .rv-end").bounding_box()
        page.mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + 10)
        page.mouse.down()
        page.mouse.move(track["x"] + track["width"] * 5.0 / 8, handle["y"] + 10, steps=8)
        page.mouse.up()
        assert page.input_value("[aria-label='end of 1']") == "0:05.0"
        page.fill("[aria-label='end of 1']", "4.9")
        page.fill("[aria-label='start of 2']", "nonsense")
        page.keyboard.press("Tab")
        assert page.get_attribute("[aria-label='start of 2']", "aria-invalid") == "true"
        page.click(".rv-yes")
        assert "A time cannot be read" in page.inner_text(".rv-status")
        page.click("[aria-label='remove evidence 2']")
        page.click("[aria-label='add segment 4']")
        page.focus("[data-index='1'] .rv-end")
        page.keyboard.press("ArrowLeft")
        # Past the video's end: refused by the server, with a reason, and nothing is saved.
        page.fill("[aria-label='end of 2']", "99")
        page.keyboard.press("Tab")
        page.click(".rv-yes")
        page.wait_for_selector(".rv-status.bad")
        assert "after the video's end at 8 s" in page.inner_text(".rv-status")
        page.fill("[aria-label='end of 2']", "0:07.0")
        page.keyboard.press("Tab")
        page.click(".rv-yes")
        page.wait_for_selector(".rv-main", state="hidden")
    ((_, answers),) = ReviewStore(tmp_path / "review.sqlite").answers("adjudicate")
    assert answers[0].body["evidence"] == [
        {"timestamp": [2.0, 4.9], "description": "step 1"}, {"timestamp": [6.0, 7.0], "description": "step 3"},
    ]  # fmt: skip


def test_ratings_by_keys_blind_double_and_the_meta_reviewer(browser, tmp_path):
    pairs = {"clip.mp4": [{"question": "Why?", "answer": "So.", "classification": "causal"}]}
    (tmp_path / "test.json").write_text(json.dumps(pairs))
    (tmp_path / "captions.json").write_text(json.dumps({"clip.mp4": "A film."}))
    database = tmp_path / "review.sqlite"
    add(database, "verify", tmp_path / "test.json")
    add(database, "verify", tmp_path / "captions.json")
    with serving(database, None) as server:
        for name, depth in (("ann", "2"), ("bob", "5")):
            page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
            replies: list = []
            page.on("response", lambda reply, replies=replies: replies.append(reply))
            enter(page, server, name)
            assert "No video: no folder was given" in page.inner_text(".rv-video-note")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            page.keyboard.press("Enter")
            page.wait_for_selector(".rv-status.bad")  # not all is rated
            for value in ("4", "4", depth, "4", "4", "4", "4", "4"):
                page.keyboard.press(value)
            decide(page, "Enter")
            for value in ("5", "5", "5"):
                page.keyboard.press(value)
            decide(page, "Enter")
            if name == "bob":
                texts = [reply.text() for reply in replies if "/review/" in reply.url]
                assert len(texts) > 3
                assert not any("ann" in text for text in texts)
            page.context.close()
        page = browser.new_context().new_page()
        enter(page, server, "cy")
        page.wait_for_selector(".rv-low")
        assert page.inner_text(".rv-form").count("rater 1") == 2
        assert "ann" not in page.inner_text(".rv-form")
        page.keyboard.press("x")
        page.wait_for_selector(".rv-status.bad")
        page.fill(".rv-form textarea", "Too shallow")
        page.keyboard.press("Escape")
        decide(page, "x")
        page.context.close()
    assert main(["review", "export", "--database", str(database), "--out", str(tmp_path / "out")]) == 0
    verified = {row["item"]: row for row in load_json(tmp_path / "out" / "verified.jsonl")}
    assert (verified["clip.mp4/1"]["kept"], verified["clip.mp4/1"]["reason"]) == (False, "Too shallow")
    assert verified["clip.mp4/1"]["means"]["questions"]["depth"] == 3.5
    assert verified["clip.mp4/caption"]["kept"] is True


def test_segments_are_corrected_for_the_next_stage(browser, tmp_path):
    record = {"video_id": "v1", "video_path": "v1.mp4", "duration": 60.0, "data_source": "HiREST",
              "metadata": {"title": "T", "segments": segments()}}  # fmt: skip
    (tmp_path / "raw.jsonl").write_text(json.dumps(record) + "\n")
    add(tmp_path / "review.sqlite", "segments", tmp_path / "raw.jsonl")
    with serving(tmp_path / "review.sqlite", None) as server:
        page = browser.new_context().new_page()
        enter(page, server, "ann")
        page.fill("[aria-label='end of 1']", "9")
        page.fill("[aria-label='description 2']", "something else")
        page.check("[aria-label='drop 4']")
        page.evaluate("document.activeElement.blur()")
        decide(page, "s")
        page.context.close()
    assert main(["review", "export", "--database", str(tmp_path / "review.sqlite"), "--out", str(tmp_path)]) == 0
    assert main(["eg-vqa", "curate", "--work", str(tmp_path), "--edits", str(tmp_path / "segment_edits.jsonl")]) == 0
    (curated,) = load_json(tmp_path / "records.jsonl")
    assert curated["metadata"]["segments"] == [
        {"timestamp": [0.0, 9.0], "description": "step 0"},
        {"timestamp": [10.0, 18.0], "description": "something else"},
        {"timestamp": [20.0, 28.0], "description": "step 2"},
    ]  # fmt: skip
    rules = [row["rule"] for row in load_json(tmp_path / "corrections.jsonl")]
    assert rules == ["edited by ann"] * 3


def test_a_password_keeps_others_out_and_names_the_rater(browser, tmp_path):
    (tmp_path / "queue.jsonl").write_text(json.dumps(queue_row(0)) + "\n")
    add(tmp_path / "review.sqlite", "adjudicate", tmp_path / "queue.jsonl")
    with serving(tmp_path / "review.sqlite", None, password="s3cret ü") as server:
        request = urllib.request.Request(server.url + "review/state", b"{}", {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, timeout=20)
        wrong = browser.new_context(http_credentials={"username": "eve", "password": "guess"}).new_page()
        assert wrong.goto(server.url).status == 401
        page = browser.new_context(http_credentials={"username": "dora", "password": "s3cret ü"}).new_page()
        page.goto(server.url)
        page.wait_for_selector(".rv-form")
        assert page.inner_text(".rv-who") == "dora"
        decide(page, "a")
    ((_, answers),) = ReviewStore(tmp_path / "review.sqlite").answers("adjudicate")
    assert [one.rater for one in answers] == ["dora"]
