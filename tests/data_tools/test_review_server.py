"""Requests of the review page without a browser: who gets in, what is refused, what is shown to whom."""

import base64

import pytest

pytest.importorskip("fastapi")
from fastapi import FastAPI
from fastapi.testclient import TestClient

from data_tools.review.gate import Gate, bare_host
from data_tools.review.server import ReviewApi
from data_tools.review.store import ReviewStore
from tests.data_tools.review_rows import EVIL, pair_item, question_item, rated

LOCAL = "http://127.0.0.1:7860"


def client(store, videos=None, password=None, base_url=LOCAL) -> TestClient:
    app = FastAPI()
    ReviewApi(store, videos).routes(app)
    return TestClient(Gate(app, password), base_url=base_url)


@pytest.fixture
def store(tmp_path):
    found = ReviewStore(tmp_path / "review.sqlite")
    name, payload = question_item(0)
    found.add("adjudicate", [(name, {**payload, "why": f"{EVIL} \ud800"})])
    found.add("verify", [pair_item(0)], raters=2)
    return found


def test_an_item_comes_is_saved_and_opened_again(store):
    page = client(store)
    state = page.post("/review/state", json={"rater": "ann"}).json()
    assert [one["task"] for one in state["tasks"]] == ["adjudicate", "verify"]
    item = page.post("/review/next", json={"rater": "ann", "task": "adjudicate"}).json()["item"]
    assert item["payload"]["why"] == f"{EVIL} \ud800"
    assert "no folder was given" in item["video_problem"]
    sent = {"rater": "ann", "item": item["id"], "answer": {"decision": "reject", "comment": "no"}}
    assert page.post("/review/save", json=sent).json() == {"saved": True}
    assert page.post("/review/save", json=sent).json() == {"saved": False}
    assert page.post("/review/next", json={"rater": "ann", "task": "adjudicate"}).json()["item"] is None
    again = page.post("/review/open", json={"rater": "ann", "item": item["id"]}).json()["item"]
    assert again["answer"] == {"decision": "reject", "comment": "no"}
    assert page.post("/review/open", json={"rater": "bob", "item": item["id"]}).status_code == 422
    late = page.post("/review/save", json={**sent, "rater": "bob"})
    assert (late.status_code, late.json()["taken"]) == (409, True)


@pytest.mark.parametrize(
    ("path", "sent", "said"),
    [
        ("save", {"rater": "ann", "item": 99, "answer": {}}, "there is no item 99"),
        ("save", {"rater": "ann", "item": 1, "answer": None}, "q000"),
        ("save", {"rater": "ann", "answer": {}}, "name an item"),
        ("next", {"rater": "ann", "task": "dance"}, "task"),
        ("next", {"rater": "ann"}, "name a task"),
        ("next", {"rater": " "}, "rater"),
        ("state", {"rater": "x" * 61}, "rater"),
        ("renew", {"rater": "ann", "item": 10**30}, "item"),
    ],
)
def test_what_cannot_be_is_refused_in_words(store, path, sent, said):
    reply = client(store).post(f"/review/{path}", json=sent)
    assert (reply.status_code, said in reply.json()["error"]) == (422, True)


def test_ratings_of_others_are_shown_to_the_meta_reviewer_alone_and_without_names(store):
    page = client(store)
    for rater in ("ann-the-first", "bob-the-second"):
        sent = {"rater": rater, "task": "verify"}
        reply = page.post("/review/next", json=sent)
        assert "ann-the-first" not in reply.text or rater == "ann-the-first"
        item = reply.json()["item"]["id"]
        page.post("/review/save", json={"rater": rater, "item": item, "answer": rated(2)})
    reply = page.post("/review/next", json={"rater": "cy", "task": "meta"})
    assert len(reply.json()["item"]["ratings"]) == 2
    assert "ann-the-first" not in reply.text
    assert page.post("/review/next", json={"rater": "ann-the-first", "task": "meta"}).json()["item"] is None


def test_videos_are_sent_in_ranges_and_from_the_folder_alone(store, tmp_path):
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "clip.mp4").write_bytes(bytes(range(100)))
    page = client(store, tmp_path / "videos")
    part = page.get("/review/video/1", headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, bytes(range(10, 20)))
    assert page.get("/review/video/2").status_code == 404
    assert page.get("/review/video/99").status_code == page.get(f"/review/video/{10**30}").status_code == 404


def test_only_loopback_names_and_the_own_origin_get_in_without_a_password(store):
    sent = {"rater": "ann"}
    assert client(store, base_url="http://evil.example").post("/review/state", json=sent).status_code == 403
    page = client(store)
    assert page.post("/review/state", json=sent, headers={"Origin": "http://evil.example"}).status_code == 403
    assert page.post("/review/state", json=sent, headers={"Origin": LOCAL}).status_code == 200
    assert (
        page.post("/review/state", content=b'{"rater": "a"}', headers={"Content-Type": "text/plain"}).status_code == 422
    )
    reply = page.post("/review/state", json=sent)
    assert "connect-src 'self'" in reply.headers["content-security-policy"]
    assert [bare_host(one) for one in ("[::1]:80", "localhost", "127.0.0.1:1", "::1")] == [
        "::1", "localhost", "127.0.0.1", "::1",
    ]  # fmt: skip


def test_a_password_is_asked_of_everybody_and_gives_the_name(store):
    page = client(store, password="right: ü", base_url="http://review.example")

    def ask(credentials: str | None):
        code = {} if credentials is None else {"Authorization": credentials}
        return page.post("/review/state", json={"rater": "somebody else"}, headers=code)

    def basic(text: str) -> str:
        return "Basic " + base64.b64encode(text.encode()).decode()

    names = ("ann", "ann:", "ann:wrong", ":right: ü", f"{'x' * 61}:right: ü")
    for wrong in (None, "Basic", "Basic !!", "Bearer x", *map(basic, names)):
        reply = ask(wrong)
        assert (reply.status_code, reply.headers["www-authenticate"][:5]) == (401, "Basic"), wrong
    assert ask(basic("ann:right: ü")).json()["rater"] == "ann"
