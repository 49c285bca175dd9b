"""Asking about real files: order, bad videos, conditions."""

from pathlib import Path

import jax
import numpy as np
import pytest

from data_tools.shapes.dataset import DatasetOptions, make_dataset
from experiments.shapes_sft import FRAMES, make_tokenizer, model_config
from vrjax.evaluation.evidence_questions import ask_questions, summary_of
from vrjax.evaluation.responder import Ask, Responder
from vrjax.evidence import TokenSimilarity
from vrjax.generation.prompts import ChatTokenizer
from vrjax.generation.recipe import PromptRecipe
from vrjax.generation.sampling import SamplingOptions
from vrjax.loading import LoadedModel, abstract_model
from vrjax.records import load_records

GREEDY = SamplingOptions(max_tokens=8, temperature=0)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    from flax import nnx

    from vrjax.models.qwen2_5_vl import Qwen2_5VL

    folder = tmp_path_factory.mktemp("shapes")
    make_dataset(folder, DatasetOptions(train=3, val=0, test=4))
    tokenizer, vocabulary = make_tokenizer(folder)
    config = model_config(vocabulary)
    graph, _ = abstract_model(config)
    params = jax.jit(lambda: nnx.split(Qwen2_5VL(config, nnx.Rngs(0)))[1])()
    model = LoadedModel(config, graph, params, ChatTokenizer.load(tokenizer))
    return folder, model, load_records(folder / "test.json")


@pytest.fixture
def responder(world) -> Responder:
    return Responder(world[1], PromptRecipe(FRAMES, instruction=""), videos_at_once=2)


def test_replies_come_in_the_order_of_the_questions_whatever_is_asked_together(world, responder):
    folder, _, records = world
    videos = [folder / record.video_path for record in records]
    asks = [Ask(f"{n} {video.name}", "Which shape slides?", video) for n in range(2) for video in videos]
    together = responder.ask(asks, GREEDY)
    assert [reply.ask.name for reply in together] == [ask.name for ask in asks]
    alone = responder.ask([asks[5]], GREEDY)[0]
    np.testing.assert_array_equal(alone.samples[0].tokens, together[5].samples[0].tokens)
    np.testing.assert_allclose(alone.samples[0].raw_log_probs, together[5].samples[0].raw_log_probs, atol=1e-4)


def test_a_bad_video_is_one_unanswered_question(world, responder, tmp_path):
    folder, _, records = world
    good = folder / records[0].video_path
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(good.read_bytes()[:600])
    asks = [Ask("a", "Which shape slides?", good), Ask("b", "Which shape slides?", cut),
            Ask("c", "Which shape slides?", Path("nowhere.mp4")), Ask("d", " ", good)]  # fmt: skip
    replies = responder.ask(asks, GREEDY)
    assert [reply.problem is None for reply in replies] == [True, False, False, False]
    assert "cut.mp4" in (replies[1].problem or "")
    assert "nowhere.mp4" in (replies[2].problem or "")
    assert "empty" in (replies[3].problem or "")
    assert len(replies[0].responses) == 1


def test_conditions_show_what_they_say(world, responder):
    folder, _, records = world
    shown = {}
    for condition in ("full", "question_only", "mismatched", "blank"):
        asked = ask_questions(records, folder, responder, TokenSimilarity(), GREEDY, condition)
        shown[condition] = [None if one.reply.plan is None else Path(one.reply.plan.path).name for one in asked]
        summary = summary_of(asked, TokenSimilarity())
        assert summary["n"] == sum(len(record.questions) for record in records)
        assert summary["coverage"] == 1
    names = [Path(record.video_path).name for record in records for _ in record.questions]
    assert shown["full"] == shown["blank"] == names
    assert set(shown["question_only"]) == {None}
    assert all(one != other for one, other in zip(shown["mismatched"], names, strict=True))
