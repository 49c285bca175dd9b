"""The reply cache and its keys: what makes a request another one, damage, several processes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from vrjax.errors import InputError
from vrjax.llm import ChatReply, ChatRequest, Frames, Image, Message, ReplyCache, Text, Usage
from vrjax.llm.request_key import canonical_request, request_key
from vrjax.video import FrameOptions

REPLY = ChatReply(("yes — \ud83d",), Usage(3, 4), "m", finish_reasons=("stop",))
BASE = ChatRequest(messages=(Message.system("s"), Message.user("a", Image(b"png"))))


def key(request: ChatRequest, model: str = "m") -> str:
    return request_key(canonical_request(request, model))


def test_every_part_of_a_request_changes_its_key(tmp_path):
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"one")
    framed = replace(BASE, messages=(Message.user("a", Frames(clip)),))
    variants = [
        BASE,
        replace(BASE, messages=BASE.messages[1:]),
        replace(BASE, messages=(Message.system("s"), Message.user("b", Image(b"png")))),
        replace(BASE, messages=(Message.system("s"), Message.user("a", Image(b"gnp")))),
        replace(BASE, messages=(Message.system("s"), Message.user("a", Image(b"png", "image/jpeg")))),
        replace(BASE, messages=(Message.system("s"), Message.user(Image(b"png"), "a"))),
        replace(BASE, messages=(Message.assistant("s"), *BASE.messages[1:])),
        replace(BASE, schema={"type": "object"}),
        replace(BASE, schema={"type": "object"}, schema_name="other"),
        replace(BASE, temperature=0.5),
        replace(BASE, top_p=0.9),
        replace(BASE, max_tokens=7),
        replace(BASE, seed=0),
        replace(BASE, samples=2),
        framed,
        replace(BASE, messages=(Message.user("a", Frames(clip, FrameOptions(fps=1.0))),)),
    ]
    keys = [key(request) for request in variants] + [key(BASE, "other model")]
    assert len(set(keys)) == len(keys)


def test_a_video_counts_by_its_content_not_by_its_place(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"one")
    (tmp_path / "b.mp4").write_bytes(b"one")
    (tmp_path / "c.mp4").write_bytes(b"two")
    keys = [key(ChatRequest(messages=(Message.user(Frames(tmp_path / f"{n}.mp4")),))) for n in "abc"]
    assert keys[0] == keys[1] != keys[2]
    with pytest.raises(InputError, match=r"nowhere\.mp4: cannot be read"):
        key(ChatRequest(messages=(Message.user(Frames(Path("nowhere.mp4"))),)))


def test_a_reply_comes_back_as_it_was(tmp_path):
    cache = ReplyCache(tmp_path / "deep" / "cache")
    assert cache.read(key(BASE)) is None
    cache.write(key(BASE), canonical_request(BASE, "m"), REPLY)
    assert cache.read(key(BASE)) == replace(REPLY, cached=True)
    assert cache.counts == {"misses": 1, "written": 1, "hits": 1}
    assert json.loads(cache.path(key(BASE)).read_text())["request"]["messages"][0]["parts"] == [{"text": "s"}]


@pytest.mark.parametrize("damage", ["cut", "empty", "altered", "other json", "binary"])
def test_a_damaged_entry_is_a_counted_miss(tmp_path, damage):
    cache = ReplyCache(tmp_path)
    cache.write(key(BASE), canonical_request(BASE, "m"), replace(REPLY, texts=("score 4",)))
    path = cache.path(key(BASE))
    content = path.read_bytes()
    path.write_bytes({
        "cut": content[:-30], "empty": b"", "altered": content.replace(b"score 4", b"score 5"),
        "other json": b'[{"reply": 3}]', "binary": b"\xff\xfe\x00",
    }[damage])  # fmt: skip
    assert cache.read(key(BASE)) is None
    assert cache.counts["damaged"] == 1
    cache.write(key(BASE), canonical_request(BASE, "m"), REPLY)
    assert cache.read(key(BASE)) == replace(REPLY, cached=True)


def test_processes_that_write_the_same_entries_do_not_disturb_each_other(tmp_path):
    code = (
        "import sys; from vrjax.llm.cache import ReplyCache; from vrjax.llm.chat import ChatReply, Usage\n"
        "cache = ReplyCache(sys.argv[1])\n"
        "for turn in range(150):\n"
        "    key = f'{turn % 10:064d}'\n"
        "    cache.write(key, {'n': turn % 10}, ChatReply(('x' * 5000,), Usage(), 'm', finish_reasons=('stop',)))\n"
        "    assert cache.read(key) is not None\n"
        "assert cache.counts['damaged'] == 0 and cache.counts['not_written'] == 0, cache.counts\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 10


def test_a_directory_that_cannot_be_written_costs_no_reply(tmp_path):
    cache = ReplyCache(tmp_path / "cache")
    (tmp_path / "cache").write_text("now a file")
    cache.write(key(BASE), {}, REPLY)
    assert cache.counts["not_written"] == 1
    with pytest.raises(InputError, match="is a file"):
        ReplyCache(tmp_path / "cache")


def test_parts_and_messages_say_what_they_hold():
    message = Message.user("one ", Text("two"), Image(b"123"))
    assert message.text == "one two"
    assert "123" not in repr(message)
    with pytest.raises(InputError, match="assistant message holds an image"):
        ChatRequest(messages=(Message("assistant", (Image(b""),)),))
