"""The endpoint: what is sent, how failures are named, and where the key may not go."""

import asyncio
import base64
import io
import logging
import time
import traceback
from email.utils import formatdate

import numpy as np
import pytest
from PIL import Image as Picture

from tests.llm.faulty_server import faulty_server, right_value
from tests.video.conftest import frame_number, write_clip
from vrjax.errors import InputError
from vrjax.llm import ChatClient, ChatError, ChatRequest, Frames, Image, Message, OpenAIEndpoint, Usage, parse_llm
from vrjax.llm.frame_images import time_label
from vrjax.llm.openai_reply import retry_after_s, status_error
from vrjax.video import FrameOptions

KEY = "sk-0123456789abcdef"


def request(*parts, **options) -> ChatRequest:
    return ChatRequest(messages=(Message.system("Be brief."), Message.user(*parts)), **options)


def complete(endpoint: OpenAIEndpoint, asked: ChatRequest):
    async def once():
        try:
            return await endpoint.complete(asked)
        finally:
            await endpoint.aclose()

    return asyncio.run(once())


def test_what_is_sent_and_what_comes_back():
    with faulty_server() as server:
        schema = {"type": "object"}
        asked = request("item 0", schema=schema, schema_name="form", temperature=0.5, top_p=0.9, max_tokens=7, seed=3)
        reply = complete(OpenAIEndpoint("judge-1", server.url, KEY), asked)
        assert reply.texts == (f'{{"item": 0, "value": {right_value(0)}}}',)
        assert (reply.usage, reply.model, reply.finish_reasons) == (Usage(10, 5), "judge-1", ("stop",))
        assert server.bodies == [{
            "model": "judge-1",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "item 0"}],
            "temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "seed": 3,
            "response_format": {
                "type": "json_schema", "json_schema": {"name": "form", "schema": schema, "strict": True},
            },
        }]  # fmt: skip
        assert server.authorizations == {f"Bearer {KEY}"}


def test_samples_and_extra_fields():
    with faulty_server() as server:
        extra = {"temperature": None, "reasoning_effort": "low"}
        endpoint = OpenAIEndpoint("judge-1", server.url, extra=extra)
        assert len(complete(endpoint, request("item 0", samples=3)).texts) == 3
        assert server.bodies[0]["n"] == 3
        assert server.bodies[0]["reasoning_effort"] == "low"
        assert "temperature" not in server.bodies[0]
        # Other fields make it another model for the cache.
        assert endpoint.name != OpenAIEndpoint("judge-1", server.url).name


def test_images_and_frames_are_sent_with_their_times(tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", range(100))  # 25 frames a second, each shows its number
    options = FrameOptions(frames=4, min_pixels=28 * 28, max_pixels=128 * 96)
    with faulty_server() as server:
        asked = request("Look:", Image(b"\x89PNG", "image/png"), Frames(clip, options), "What is item 0?")
        complete(OpenAIEndpoint("judge-1", server.url, KEY), asked)
    blocks = server.bodies[0]["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["text", "image_url", *["text", "image_url"] * 4, "text"]
    assert blocks[1]["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
    # round(linspace(0, 99, 4)) at 25 frames a second
    labels = [block["text"] for block in blocks[2:-1:2]]
    assert labels == ["Frame at 00:00.0:", "Frame at 00:01.3:", "Frame at 00:02.6:", "Frame at 00:04.0:"]
    numbers = []
    for block in blocks[3:-1:2]:
        kind, data = block["image_url"]["url"].split(",")
        assert kind == "data:image/jpeg;base64"
        numbers.append(frame_number(np.asarray(Picture.open(io.BytesIO(base64.b64decode(data))))))
    assert numbers == [0, 33, 66, 99]
    assert time_label(3725.96) == "62:06.0"


def test_an_unreadable_video_is_the_requests_fault():
    endpoint = OpenAIEndpoint("judge-1", "http://localhost:9", KEY)
    with pytest.raises(InputError, match=r"nowhere\.mp4"):
        complete(endpoint, request(Frames("nowhere.mp4")))
    with pytest.raises(ChatError) as caught:
        asyncio.run(ChatClient(endpoint).complete(request(Frames("nowhere.mp4"))))
    assert caught.value.kind == "bad_request"


@pytest.mark.alone
@pytest.mark.parametrize(
    ("fault", "kind", "retryable"),
    [
        ("rate_limit", "rate_limited", True), ("quota", "rate_limited", False), ("server_error", "server", True),
        ("error_in_200", "server", True), ("cut_before_reply", "connection", True),
        ("cut_in_reply", "connection", True), ("slow", "timeout", True), ("web_page", "bad_reply", True),
        ("not_json", "bad_reply", True), ("no_choices", "bad_reply", True), ("null_content", "bad_reply", True),
        ("refusal", "refused", False), ("filtered", "refused", False), ("unauthorised", "unauthorised", False),
    ],
)  # fmt: skip
def test_every_failure_has_a_kind(fault, kind, retryable, caplog):
    caplog.set_level(logging.DEBUG)
    with faulty_server(always=fault, slow_s=3) as server:
        endpoint = OpenAIEndpoint("judge-1", server.url, KEY, timeout_s=0.5 if fault == "slow" else 20)
        begin = time.monotonic()
        with pytest.raises(ChatError) as caught:
            complete(endpoint, request("item 0"))
        assert time.monotonic() - begin < 2.5
        error = caught.value
        assert (error.kind, error.retryable) == (kind, retryable)
        assert error.retry_after_s == (1.0 if fault == "rate_limit" else None)
        assert server.calls == 1  # retries are the client's
        # The key is in nothing that can be shown, though the server may echo it.
        shown = "".join(traceback.format_exception(error)) + repr(vars(error)) + repr(endpoint) + endpoint.name
        assert KEY not in shown + caplog.text
        assert error.__cause__ is None
        assert error.__context__ is None
        if fault == "unauthorised":
            assert "[key]" in str(error)


def test_nobody_listens():
    with faulty_server() as server:
        url = server.url
    with pytest.raises(ChatError, match="connection failed") as caught:
        complete(OpenAIEndpoint("judge-1", url, KEY), request("item 0"))
    assert caught.value.kind == "connection"


def test_retry_after_is_kept_to_in_real_time():
    with faulty_server() as server:
        client = ChatClient(OpenAIEndpoint("judge-1", server.url, KEY))
        asyncio.run(client.complete(request("item 1")))  # 429 with Retry-After: 1 at first
        assert server.times[1] - server.times[0] >= 1.0


def test_retry_after_forms():
    assert retry_after_s({"retry-after": "7"}) == 7
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "1"}) == 0.25
    assert retry_after_s({"retry-after": formatdate(time.time() + 60, usegmt=True)}) == pytest.approx(60, abs=3)
    assert retry_after_s({"retry-after": formatdate(time.time() - 60, usegmt=True)}) == 0
    for nonsense in ("soon", "nan", "inf", ""):
        assert retry_after_s({"retry-after": nonsense}) is None


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "", "bad_request"), (404, "model_not_found", "bad_request"), (413, "", "bad_request"),
        (400, "content_filter", "refused"), (401, "", "unauthorised"), (403, "", "unauthorised"),
        (408, "", "server"), (409, "", "server"), (429, "", "rate_limited"), (502, "", "server"), (529, "", "server"),
    ],
)  # fmt: skip
def test_status_codes(status, code, kind):
    assert status_error("m", status, {"code": code}, "words", None).kind == kind


def test_tokens_that_a_server_does_not_count_are_estimated_and_said_so():
    with faulty_server(always="no_usage") as server:
        client = ChatClient(OpenAIEndpoint("judge-1", server.url, KEY))
        reply = asyncio.run(client.complete(request("item 0" + "x" * 385)))
    # 9 + 391 characters at 4 a token; {"item": 0, "value": 0} has 23
    assert reply.usage == Usage(100, 6, estimated=True)
    assert client.summary["usage_estimated"] == 1


def test_credentials_in_an_address_are_not_in_its_name():
    endpoint = OpenAIEndpoint("m", "https://user:hunter2@host.example:8443/v1?token=hunter2", KEY)
    assert endpoint.name == "openai:m at https://host.example:8443/v1"
    assert "hunter2" not in repr(endpoint)
    with pytest.raises(InputError, match="not an address") as caught:
        OpenAIEndpoint("m", "hunter2")
    assert "hunter2" not in str(caught.value)


def test_organisation_headers_of_the_environment_are_not_sent_to_others(monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-someone-else")
    with faulty_server() as server:
        complete(OpenAIEndpoint("judge-1", server.url), request("item 0"))
    assert server.authorizations == {"Bearer none"}
    assert server.organizations == {None}


def test_specs():
    endpoint = parse_llm("openai:org/model:tag", "http://localhost:1/v1", None)
    assert endpoint.name == "openai:org/model:tag at http://localhost:1/v1"
    assert parse_llm("openai:gpt-4o", None, KEY).name == "openai:gpt-4o at https://api.openai.com/v1"
    for spec in ("gpt-4o", "openai:", "other:x", "", ":x"):
        with pytest.raises(InputError, match=r"openai:MODEL or native:DIR"):
            parse_llm(spec)
    with pytest.raises(InputError, match="needs an API key"):
        parse_llm("openai:gpt-4o")
    with pytest.raises(InputError, match="no base URL"):
        parse_llm("native:somewhere", "http://localhost:1/v1")
    with pytest.raises(InputError, match="no such model directory"):
        parse_llm("native:./no/such/directory")
