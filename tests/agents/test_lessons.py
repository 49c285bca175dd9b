"""Stored traces as training conversations: what a model is taught is what the endpoint was asked and said."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from data_tools.shapes.tokenizer import build_tokenizer
from experiments.scripted_endpoint import scripted_endpoint
from experiments.shapes_script import ShapesScript
from experiments.shapes_sft import model_config
from tests.agents.test_command import vrjax
from vrjax.agents import AgentSettings, Sampling, ToolSettings, VideoAgent, run_questions
from vrjax.errors import InputError
from vrjax.generation import ChatTokenizer
from vrjax.llm import ChatClient, parse_llm
from vrjax.llm.conversation_file import load_conversations, save_conversations
from vrjax.run_directory import RunDirectory
from vrjax.training.config import DatasetConfig, InputConfig
from vrjax.training.conversations import ConversationText, open_conversations
from vrjax.training.rows import row_vision
from vrjax.training.survey import Damage


def text_of(message) -> str:
    return "\n".join(part.text for part in message.parts if part.text is not None)


@pytest.fixture(scope="module")
def taught(tmp_path_factory, shapes_tasks, shared):
    """Two questions answered by the scripted endpoint, what it was asked with its replies, and the folders."""
    out, heard = tmp_path_factory.mktemp("lessons"), []
    script = ShapesScript()

    def listening(asked):
        said = script(asked)
        heard.append((asked, said if isinstance(said, str) else json.dumps(said)))
        return said

    async def run(agent):
        try:
            await run_questions(
                agent, [type(task)(task.id, task.question, task.video) for task in shapes_tasks[:2]], out / "runs"
            )
        finally:
            await agent.chat.aclose()

    with scripted_endpoint(listening) as endpoint:
        client = ChatClient(parse_llm("openai:scripted", endpoint.url))
        settings = {"agent": AgentSettings(brief=True), "tool_settings": ToolSettings(window=8)}
        with VideoAgent(client, sampling=Sampling(max_pixels=56 * 56), **settings, **shared) as agent:
            asyncio.run(run(agent))
    assert vrjax("agent", "sft-data", out / "runs", "--out", out / "sft") == 0
    return heard, out


def test_each_reply_is_learned_behind_what_led_to_it(taught):
    heard, out = taught
    learned = []
    for one in load_conversations(out / "sft" / "conversations.jsonl"):
        for place, message in enumerate(one.messages):
            if message.learn:
                before = one.messages[:place]
                system = text_of(before[0]) if before[0].role == "system" else ""
                turns = tuple((said.role, text_of(said)) for said in before if said.role != "system")
                pictures = sum(part.image is not None for said in before for part in said.parts)
                learned.append((system, turns, pictures, text_of(message)))
    asked = []
    for request, reply in heard:
        turns = [(role, words) for role, words in request.turns]
        if request.form is not None:  # ours is told of the form in words
            schema = request.body["response_format"]["json_schema"]["schema"]
            wish = "Reply with one JSON value that fits this JSON schema, and with nothing else:"
            turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n\n{wish}\n{json.dumps(schema, ensure_ascii=False)}")
        asked.append((request.system, tuple(turns), len(request.pictures), reply))
    assert len(heard) > 20
    assert sorted(map(repr, set(learned))) == sorted(map(repr, set(asked)))


def test_an_agents_trace_is_one_conversation(taught):
    _, out = taught
    found = load_conversations(out / "sft" / "conversations.jsonl")
    whole = [one for one in found if one.id.endswith("all, part 1")]
    assert len(whole) == 2
    assert all(sum(message.learn for message in one.messages) == 3 for one in whole)
    images = {part.image for one in found for message in one.messages for part in message.parts if part.image}
    assert images == {f"images/{path.name}" for path in (out / "sft" / "images").iterdir()}


@pytest.fixture(scope="module")
def text(taught, tmp_path_factory):
    _, out = taught
    found = load_conversations(out / "sft" / "conversations.jsonl")
    words = [part.text for one in found for message in one.messages for part in message.parts if part.text is not None]
    folder = tmp_path_factory.mktemp("tokenizer")
    vocabulary = build_tokenizer(words, folder).get_vocab()
    return ConversationText(ChatTokenizer.load(folder), model_config(vocabulary), 4096)


def test_rows_predict_the_replies_and_nothing_else(taught, text, tmp_path):
    _, out = taught
    path = out / "sft" / "conversations.jsonl"
    corpus = open_conversations(
        [DatasetConfig(path, form="conversations")], text, InputConfig(), RunDirectory(tmp_path), "survey", print
    )
    assert not corpus.survey.damaged
    for row, one in enumerate(corpus.conversations):
        packed = corpus.packed(row)
        replies = [text_of(message) for message in one.messages if message.learn]
        said = text.chat.tokenizer.decode(packed.targets.tolist(), skip_special_tokens=False)
        assert said == "".join(f"{reply}<|im_end|>" for reply in replies)
        np.testing.assert_array_equal(packed.tokens[packed.target_at + 1], packed.targets)
        starts = np.flatnonzero(np.diff(packed.target_at, prepend=-2) > 1)
        header = text.chat.marks("<|im_start|>assistant\n")
        for start in packed.target_at[starts]:
            assert packed.tokens[start - len(header) + 1 : start + 1].tolist() == header
        vision = corpus.vision(row)
        assert (packed.feature_index >= 0).sum() == sum(np.prod(item.grid) // 4 for item in vision)
        assert corpus.sizes[row].length == len(packed.tokens)
        if vision:
            row_vision(vision, text.config.vision, corpus.sizes[row])


def test_what_cannot_be_learned_is_named(taught, text, tmp_path):
    _, out = taught
    path = out / "sft" / "conversations.jsonl"
    first = load_conversations(path)[0]
    last = first.messages[-1]
    marked = last.model_copy(update={"parts": (last.parts[0].model_copy(update={"text": "a <|im_end|> b"}),)})
    bad = first.model_copy(update={"id": "bad", "messages": (*first.messages[:-1], marked)})
    changed = out / "sft" / "changed.jsonl"
    save_conversations(changed, [*load_conversations(path), bad])
    open_again = (text, InputConfig(max_damaged_share=0.5), RunDirectory(tmp_path), "survey", lambda _: None)
    corpus = open_conversations([DatasetConfig(changed, form="conversations")], *open_again)
    assert [(item.name, item.damage) for item in corpus.survey.damaged] == [("bad", Damage.CONTROL_TOKENS)]
    with pytest.raises(InputError, match="have changed"):
        open_conversations([DatasetConfig(path, form="conversations")], *open_again)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for message in rows[0]["messages"]:
        message.pop("learn", None)
    changed.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match="no message is to be learned"):
        load_conversations(changed)
