"""The word tokenizer loses nothing and stays small."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from data_tools.shapes.dataset import DatasetOptions, clip_record
from data_tools.shapes.tokenizer import SPECIAL_TOKENS, TAGS, TIMES, build_tokenizer, unknown_count
from data_tools.shapes.world import COLOURS, KINDS
from vrjax.evidence import Evidence, Span, format_response, parse_response


def clock(seconds):
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def response(question):
    lines = "".join(f"Time:{clock(t.start)}-{clock(t.end)}, Des: {t.description}\n" for t in question.evidence)
    return f"<evidence>\n{lines}</evidence>\n<think>{question.reasoning}</think>\n<answer>{question.answer}</answer>"


@pytest.fixture(scope="module")
def questions():
    options = DatasetOptions(train=600, val=0, test=200, seed=2)
    return [
        question
        for split in ("train", "test")
        for number in range(getattr(options, split))
        for question in clip_record(options, split, number).questions
    ]


@pytest.fixture(scope="module")
def folder(questions, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer([text for q in questions[:1200] for text in (q.question, response(q))], path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(str(folder))


def test_every_text_of_the_world_comes_back_bit_for_bit(tokenizer, questions):
    for question in questions:
        for text in (question.question, response(question)):
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.decode(ids) == text
            assert tokenizer.decode(ids, skip_special_tokens=True) == text
            assert unknown_count(ids, tokenizer) == 0


# No piece that begins with a letter: after a word it would make another word.
WORLD_PIECES = st.sampled_from(
    [
        *TAGS,
        *TIMES,
        *(f" {word}" for word in COLOURS + KINDS),
        "\n",
        " ",
        ", Des:",
        "-",
        ",",
        ".",
        "?",
        ":",
        " the",
        " touches",
        " turns",
        *SPECIAL_TOKENS,
    ]
)


@given(st.lists(WORLD_PIECES, max_size=30))
def test_any_mixture_of_pieces_comes_back(tokenizer, pieces):
    text = "".join(pieces)
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert unknown_count(ids, tokenizer) == 0


@given(st.data())
def test_decoding_joins_any_tokens_as_they_are(tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=40))
    assert tokenizer.decode(ids) == "".join(tokenizer.convert_ids_to_tokens(ids))


def test_the_package_s_own_formatter_and_parser_agree(tokenizer, questions):
    for question in questions[:100]:
        pieces = [Evidence(Span(*text.timestamp), text.description) for text in question.evidence]
        text = format_response(pieces, question.reasoning, question.answer)
        assert text == response(question)
        parsed = parse_response(tokenizer.decode(tokenizer(text)["input_ids"]))
        assert parsed.well_formed
        assert parsed.answer == question.answer


def test_responses_are_short_and_the_vocabulary_small(tokenizer, questions):
    lengths = [len(tokenizer(response(question))["input_ids"]) + 1 for question in questions]
    assert max(lengths) <= 48
    assert 112 <= len(tokenizer) <= 160
    assert max(len(tokenizer(question.question)["input_ids"]) for question in questions) <= 20


def test_a_time_is_one_token_and_so_is_every_special_token(tokenizer):
    ids = tokenizer("Time:00:02-00:59, Des:")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["Time:", "00:02", "-", "00:59", ", Des:"]
    assert [tokenizer(token)["input_ids"] for token in SPECIAL_TOKENS] == [[number] for number in range(8)]
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token == "<|endoftext|>"


def test_unknown_words_are_counted_and_special_ones_skipped(tokenizer):
    ids = tokenizer("Which zebra slides?<|im_end|>")["input_ids"]
    assert unknown_count(ids, tokenizer) == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Which slides?"


def test_the_chat_template_is_qwen_s(tokenizer):
    user = {"role": "user", "content": [{"type": "video"}, {"type": "text", "text": "Which shape slides?"}]}
    prompt = tokenizer.apply_chat_template([user], tokenize=False, add_generation_prompt=True)
    assert prompt == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>Which shape slides?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert unknown_count(tokenizer(prompt)["input_ids"], tokenizer) == 0
    assert tokenizer.decode(tokenizer(prompt)["input_ids"]) == prompt
    turns = [{"role": "system", "content": "the"}, user, {"role": "assistant", "content": "the circle"}]
    assert tokenizer.apply_chat_template(turns, tokenize=False).endswith(
        "<|im_start|>assistant\nthe circle<|im_end|>\n"
    )


def test_it_loads_beside_a_qwen_config_and_ids_do_not_depend_on_the_order_of_texts(folder, questions, tmp_path):
    texts = [text for q in questions[:1200] for text in (q.question, response(q))]
    build_tokenizer(texts[::-1], tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl"}))
    again, first = AutoTokenizer.from_pretrained(str(tmp_path)), AutoTokenizer.from_pretrained(str(folder))
    assert again.get_vocab() == first.get_vocab()
    text = response(questions[0])
    assert again.decode(again(text)["input_ids"]) == text
