"""A conversation with our own model is kept within its context by its own tokenizer."""

from __future__ import annotations

import pytest

from tests.generation.conftest import chat, config, split_model  # noqa: F401  (fixtures)
from vrjax.agents.exchanges import RecordingChat
from vrjax.agents.history import PER_MESSAGE, Turn, room_of
from vrjax.errors import InputError
from vrjax.generation import Turn as ChatTurn
from vrjax.generation import build_conversation
from vrjax.llm import ChatClient, Message, NativeChat
from vrjax.loading import LoadedModel

REPLY = 64


@pytest.fixture(scope="module")
def native(config, split_model, chat):  # noqa: F811
    with NativeChat(LoadedModel(config, *split_model, chat)) as found:
        yield found


def prompt_of(native, messages):
    turns = [ChatTurn(message.role, (message.text,)) for message in messages]
    limit = native.context - REPLY
    return build_conversation(native.model.chat, native.model.config, turns, limit=limit)


def test_the_history_is_cut_to_the_models_context(native):
    room = room_of(ChatClient(native, timeout_s=None), 80_000, REPLY)
    assert (room.unit, room.most) == ("tokens", native.context - REPLY)
    head = (Message.system("What moves ?"), Message.user("The red circle"))
    turns = [Turn("then stops", "x = 1", "moves and stops " * 20) for _ in range(9)]
    everything = [
        *head,
        *(message for turn in turns for message in (Message.assistant(turn.reply), Message.user(turn.result))),
    ]
    with pytest.raises(InputError, match="only 448 fit"):
        prompt_of(native, everything)
    messages, left_out = room.fit(head, turns, "tail")
    prompt = prompt_of(native, messages)
    assert 0 < left_out < len(turns)
    # Not a result more than had to go.
    assert room.most - len(prompt) < 60 + PER_MESSAGE * (2 * len(turns) + 3)
    assert messages[-1].text.startswith("moves and stops")


def test_other_backends_are_measured_in_characters(native):
    class Unknown:
        name = "unknown"

        async def complete(self, request):
            raise NotImplementedError

    room = room_of(RecordingChat(Unknown()), 5_000, REPLY)
    assert (room.unit, room.most) == ("characters", 5_000)
