"""Conversations in training: the loss of a row is what the engine makes of the same replies behind the same prompts."""

from __future__ import annotations

import io

import jax
import numpy as np
import pytest
from flax import nnx
from PIL import Image as Picture

from tests.generation.conftest import chat, config, split_model  # noqa: F401  (fixtures)
from vrjax.generation import Continuations, Engine, Turn, build_conversation
from vrjax.llm import Image, Message
from vrjax.llm.conversation_file import Conversation, said, save_conversations
from vrjax.loading import LoadedModel
from vrjax.run_directory import RunDirectory
from vrjax.training.buckets import fit_buckets
from vrjax.training.config import DatasetConfig, InputConfig
from vrjax.training.conversations import ConversationText, images_of, open_conversations
from vrjax.training.data import RowReader
from vrjax.training.forward import ForwardOptions
from vrjax.training.rows import stack_rows
from vrjax.training.schedule import Schedule
from vrjax.training.supervised_step import make_loss_sums


def picture(seed: int, height: int, width: int) -> Image:
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)
    Picture.fromarray(pixels).save(file, "PNG")
    return Image(file.getvalue())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, config, chat):  # noqa: F811
    folder = tmp_path_factory.mktemp("conversations")
    shown = [
        [Message.system("You are helpful"), Message.user("What moves ?"), Message.assistant("The red circle"),
         Message.user("then ?"), Message.assistant("The square stops and stops")],
        [Message.user("01", picture(1, 56, 56), "02", picture(2, 56, 84), "What stops ?"),
         Message.assistant("a square")],
        [Message.user("What ?"), Message.assistant("and then"), Message.user(picture(3, 84, 56), "moves ?"),
         Message.assistant("The red square")],
    ]  # fmt: skip
    learned = [{2, 4}, {1}, {3}]
    conversations = [
        Conversation(id=str(n), messages=tuple(said(one, folder, place in learn) for place, one in enumerate(messages)))
        for n, (messages, learn) in enumerate(zip(shown, learned, strict=True))
    ]
    save_conversations(folder / "conversations.jsonl", conversations)
    return open_conversations(
        [DatasetConfig(folder / "conversations.jsonl", form="conversations")],
        ConversationText(chat, config, 512), InputConfig(), RunDirectory(folder / "run"), "survey", print,
    )  # fmt: skip


@pytest.mark.slow
def test_the_loss_is_that_of_the_replies_as_the_engine_reads_them(corpus, config, split_model, chat):  # noqa: F811
    graph, params = split_model
    buckets = fit_buckets(corpus.sizes, max_programs=1, max_padding=0.9)
    schedule = Schedule(corpus.sizes, corpus.counts, [1.0], buckets, 3, seed=0)
    reader = RowReader(corpus, schedule, 1)
    elements = [reader[place] for place in range(3)]
    assert all(element["damage"] == b"" for element in elements)
    rows = stack_rows([element["rows"] for element in elements])
    loss_sums = jax.jit(make_loss_sums(graph, ForwardOptions(), freeze_vision=False))
    nll, weight = loss_sums(params, nnx.State({}), rows)

    engine, expected, count = Engine(LoadedModel(config, graph, params, chat)), 0.0, 0
    for number, one in enumerate(corpus.conversations):
        images = iter(images_of(one, corpus.folders[number], config))
        turns = [
            Turn(message.role, tuple(next(images) if part.text is None else part.text for part in message.parts))
            for message in one.messages
        ]
        for place, message in enumerate(one.messages):
            if message.learn:
                reply = (*chat.encode(message.parts[0].text), *chat.marks("<|im_end|>"))
                prompt = build_conversation(chat, config, turns[:place])
                (reading,) = engine.read([Continuations(prompt, (reply,))], log_probs=True)[0]
                expected -= float(reading.log_probs.sum())
                count += len(reply)
    assert float(weight) == count
    assert float(nll) == pytest.approx(expected, rel=1e-4)


def test_a_missing_image_is_named(corpus, tmp_path):
    broken = corpus.conversations[1]
    save_conversations(tmp_path / "c.jsonl", [broken, *corpus.conversations[:1]])
    found = open_conversations(
        [DatasetConfig(tmp_path / "c.jsonl", form="conversations")],
        corpus.text, InputConfig(max_damaged_share=0.6), RunDirectory(tmp_path / "run"), "survey", lambda _: None,
    )  # fmt: skip
    (item,) = found.survey.damaged
    assert (item.name, str(item.damage)) == ("1", "unreadable_video")
    assert "images/" in item.message
