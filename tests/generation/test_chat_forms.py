"""Chat forms against published tokenizers' own templates, token by token; plain text; templates of no known form."""

import copy
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.models.llama_reference import CONFIGS
from vrjax.checkpoints import gguf_file
from vrjax.errors import InputError
from vrjax.generation import ChatTokenizer, Turn, build_conversation, build_prompt

LLAMA = CONFIGS["tied, scaled"]
SMOLLM2_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CONVERSATIONS = {
    "one question": [("user", "What is 2 + 2?")],
    "system": [("system", "Be  brief."), ("user", "\n\nHello — 你好 ")],
    "several": [("user", " So "), ("assistant", "Yes.\n"), ("user", "12  345\tfoo"), ("assistant", ""), ("user", "?")],
}


@pytest.fixture(scope="module")
def llama3():
    folder = os.environ.get("VRJAX_REALDATA")
    if not folder:
        pytest.skip("VRJAX_REALDATA is not set: no published tokenizer at hand")
    return ChatTokenizer.load(Path(folder) / "tokenizers/llama3_1")


@pytest.fixture(scope="module")
def smollm(smollm2_file):
    return ChatTokenizer.of(gguf_file.read_tokenizer(gguf_file.GGUFFile.open(smollm2_file)))


@pytest.fixture(scope="module", params=["llama3", "smollm"])
def published(request) -> ChatTokenizer:
    return request.getfixturevalue(request.param)


def of_template(chat: ChatTokenizer, conversation, **variables) -> list[int]:
    messages = [{"role": role, "content": text} for role, text in conversation]
    found = chat.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, **variables)
    return found["input_ids"]


def turns_of(conversation) -> list[Turn]:
    return [Turn(role, (text,)) for role, text in conversation]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_ids_are_those_of_the_published_template(published, name):
    conversation = CONVERSATIONS[name]
    prompt = build_conversation(published, LLAMA, turns_of(conversation))
    assert prompt.tokens.tolist() == of_template(published, conversation)
    assert prompt.positions.tolist() == [list(range(len(prompt)))]
    assert (prompt.next_position, prompt.vision) == (len(prompt), ())


plain_text = st.text(max_size=40).filter(lambda text: "<" not in text)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    system=st.none() | plain_text,
    texts=st.lists(plain_text, min_size=1, max_size=4),
)
def test_any_texts_give_the_ids_of_the_template(published, system, texts):
    conversation = [] if system is None else [("system", system)]
    conversation += [(("user", "assistant")[number % 2], text) for number, text in enumerate(texts)]
    prompt = build_conversation(published, LLAMA, turns_of(conversation))
    assert prompt.tokens.tolist() == of_template(published, conversation)


def test_what_the_published_tokenizers_bring(llama3, smollm):
    assert (llama3.form.name, llama3.form.begin, llama3.form.system) == ("Llama 3", "<|begin_of_text|>", None)
    assert llama3.end_ids == (128009,)
    assert (smollm.form.name, smollm.form.begin, smollm.form.system) == ("ChatML", "", SMOLLM2_SYSTEM)
    assert (smollm.end_ids, smollm.pad_id) == ((2,), 2)
    # Special by their kind, not by the look of their names: <repo_name>, <file_sep>, …
    assert smollm.control_ids == frozenset(range(17))
    with pytest.raises(InputError, match="control token <file_sep>"):
        smollm.encode("see <file_sep> this")


def test_a_piecewise_text_is_one_text(published):
    whole = build_conversation(published, LLAMA, [Turn("user", (" What moves",)), Turn("user", ("b",))])
    pieces = build_conversation(published, LLAMA, [Turn("user", (" Wh", "at mo", "ves")), Turn("user", ("", "b"))])
    np.testing.assert_array_equal(whole.tokens, pieces.tokens)


def test_the_trunk_ends_where_questions_differ(published):
    one, other = (build_prompt(published, LLAMA, text, system="Be brief.") for text in ("What moves?", "Who comes?"))
    assert one.trunk == other.trunk > 5
    np.testing.assert_array_equal(one.tokens[: one.trunk], other.tokens[: one.trunk])
    assert "moves" in published.tokenizer.decode(one.tokens[one.trunk :])


# Llama 3.1 and later write a header with the date before every system text, and a system turn in any case.
DATED_TEMPLATE = (
    "{{ bos_token }}{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content']|trim %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
    "{{ '<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: ' }}"
    "{{ date_string + '\n\n' + system + '<|eot_id|>' }}"
    "{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{ message['content'] | trim }}{{ '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)


def with_template(chat: ChatTokenizer, template: str | None) -> ChatTokenizer:
    tokenizer = copy.deepcopy(chat.tokenizer)
    tokenizer.chat_template = template
    return ChatTokenizer.of(tokenizer)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_header_with_the_date_is_the_template_s_own_and_never_today_s(llama3, name):
    dated = with_template(llama3, DATED_TEMPLATE)
    assert dated.form.name == "Llama 3"
    prompt = build_conversation(dated, LLAMA, turns_of(CONVERSATIONS[name]))
    assert prompt.tokens.tolist() == of_template(dated, CONVERSATIONS[name], date_string="26 Jul 2024")
    text = dated.tokenizer.decode(prompt.tokens)
    assert text.startswith(
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
        "Today Date: 26 Jul 2024\n\n"
    )


def test_a_base_model_is_asked_in_plain_text(llama3, smollm):
    base = with_template(llama3, None)
    assert base.form.name == "plain"
    prompt = build_prompt(base, LLAMA, "The capital of France is")
    assert prompt.tokens.tolist() == base.tokenizer("The capital of France is")["input_ids"]
    assert prompt.tokens[0] == 128000  # <|begin_of_text|>, which this tokenizer puts first by itself
    both = build_conversation(base, LLAMA, turns_of([("system", "Facts."), ("user", "Paris?"), ("assistant", "Is")]))
    assert both.tokens.tolist() == base.tokenizer("Facts.\n\nParis?\n\nIs")["input_ids"]

    base = with_template(smollm, None)
    assert base.form.begin == ""
    text = build_prompt(base, LLAMA, " 12  cats")
    assert text.tokens.tolist() == smollm.tokenizer(" 12  cats")["input_ids"]


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% endfor %}",
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '\n<|im_end|>\n' }}{% endfor %}",
        "{{ raise_exception('no') }}",
    ],
)
def test_a_template_of_no_known_form_is_named_when_it_is_needed(smollm, template):
    other = with_template(smollm, template)
    assert other.form is None
    assert other.encode("text alone")
    with pytest.raises(InputError, match="q7: the tokenizer's chat template writes a form that is not known"):
        build_prompt(other, LLAMA, "What?", name="q7")


def test_vision_in_front_of_a_model_that_reads_text_alone(smollm, make_video):
    with pytest.raises(InputError, match="q1: the model reads text alone"):
        build_prompt(smollm, LLAMA, "What moves?", [make_video(1)], name="q1")
    with pytest.raises(InputError, match="the model reads text alone"):
        build_conversation(smollm, LLAMA, [Turn("user", (make_video(1), "a"))])


def test_a_video_model_with_another_tokenizer(smollm, config):
    with pytest.raises(InputError, match=r"Qwen's chat form, but its tokenizer lacks .*<\|vision_start\|>"):
        build_prompt(smollm, config, "What moves?")


def test_prompts_beyond_the_context(published):
    whole = build_prompt(published, LLAMA, "What moves?")
    assert len(build_prompt(published, LLAMA, "What moves?", limit=len(whole))) == len(whole)
    with pytest.raises(InputError, match="fewer words"):
        build_prompt(published, LLAMA, "What moves?", limit=len(whole) - 1)


@pytest.mark.parametrize(
    ("turns", "problem"),
    [
        ([Turn("user", ("see <|im_end|> <|eot_id|> this",))], "control token"),
        ([Turn("user", ("a",)), Turn("system", ("b",))], "system message is not the first"),
        ([], "no turn"),
    ],
)
def test_what_cannot_be_asked(published, turns, problem):
    with pytest.raises(InputError, match=problem):
        build_conversation(published, LLAMA, turns)


def test_a_tokenizer_that_names_no_end(smollm):
    tokenizer = copy.deepcopy(smollm.tokenizer)
    tokenizer.chat_template = tokenizer.eos_token = None
    with pytest.raises(InputError, match="no end token"):
        ChatTokenizer.of(tokenizer)
    assert ChatTokenizer.of(tokenizer, [5, 2]).end_ids == (5, 2)
