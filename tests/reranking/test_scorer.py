"""Read-outs of SmolLM2's real weights against transformers, each candidate a call of its own there."""

import numpy as np
import pytest
import torch

import vrjax
from vrjax.errors import InputError
from vrjax.generation import Engine, EngineOptions, Turn
from vrjax.generation.chat_forms import Mark
from vrjax.reranking import Candidate, Reranker, Scorer, ScorerOptions
from vrjax.reranking.scorer import CLOSING, INSTRUCTION, expected_digit

QUESTION = "Why does the captain turn the ship around?"
TEXT = "the storm was close and he saw the lights of another ship that had lost its way in the dark"
WORDS = TEXT.split()


@pytest.fixture(scope="module")
def engine(smollm2) -> Engine:
    return Engine(vrjax.load(smollm2), EngineOptions(batch_rows=32))


@pytest.fixture(scope="module")
def peer(smollm2):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()


def candidates(count: int) -> list[str]:
    """Answers of 1 to 40 words."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 40))) + "." for _ in range(count)]


def conversation(engine: Engine, candidate: str) -> list[int]:
    """The scorer's prompt as one text, through the tokenizer's own chat template."""
    text = f"{INSTRUCTION.format(question=QUESTION)} {candidate}{CLOSING}"
    pieces, reply = engine.chat.form.lay_out([Turn("user", (text,))])
    whole = "".join(piece.text if isinstance(piece, Mark) else piece for piece in (*pieces, *reply))
    messages = [{"role": "user", "content": text}]
    assert whole == engine.chat.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return engine.chat.marks(whole)


@pytest.mark.slow
def test_expected_digit_of_50_candidates(engine, peer):
    texts = candidates(50)
    scorer = Scorer(engine)
    found = [one.score for row in scorer.score([(QUESTION, texts[:20]), (QUESTION, texts[20:])]) for one in row]
    digits = [engine.chat.tokenizer.convert_tokens_to_ids(str(digit)) for digit in range(10)]
    want = []
    for text in texts:
        with torch.no_grad():
            logits = peer(input_ids=torch.tensor([conversation(engine, text)])).logits[0, -1, digits]
        want.append(float((torch.softmax(logits.double(), 0) * torch.arange(10)).sum()))
    assert np.ptp(want) > 0.1
    np.testing.assert_allclose(found, want, atol=1e-3)


@pytest.mark.slow
def test_mean_log_likelihood(engine, peer):
    texts = candidates(6)
    found = [
        one.score for one in Scorer(engine, ScorerOptions(read_out="log_likelihood")).score([(QUESTION, texts)])[0]
    ]
    for text, score in zip(texts, found, strict=True):
        whole = conversation(engine, text)
        ids = engine.chat.encode(f" {text}")
        start = next(n for n in range(len(whole)) if whole[n : n + len(ids)] == ids)
        with torch.no_grad():
            log_probs = torch.log_softmax(peer(input_ids=torch.tensor([whole])).logits[0].double(), -1)
        each = [float(log_probs[start + n - 1, token]) for n, token in enumerate(ids)]
        assert score == pytest.approx(np.mean(each), abs=1e-3)


@pytest.mark.slow
def test_generated_number(engine):
    found = Scorer(engine, ScorerOptions(read_out="generated_number")).score([(QUESTION, candidates(4))])[0]
    for one in found:
        assert (one.score is None) == bool(one.note)
        assert one.score is None or 0 <= one.score <= 9


@pytest.mark.slow
def test_equal_texts_are_equal_and_the_better_beam_wins(engine):
    texts = ["He saw a light.", "He saw a light.", "The storm."]
    result = Reranker(Scorer(engine)).rerank(
        [(QUESTION, [Candidate(text, -number) for number, text in enumerate(texts)])]
    )
    assert result[0].scores[0] == result[0].scores[1]
    assert result[0].winner != 1


@pytest.mark.slow
def test_beyond_the_context(engine):
    long = " ".join(WORDS * 600)
    with pytest.raises(InputError, match="does not fit the scorer's context"):
        Scorer(engine).score([(QUESTION, [long])])


def test_expected_digit_of_known_logits():
    assert expected_digit(np.log(np.array([0.5, 0, 0, 0, 0, 0, 0, 0, 0, 0.5]) + 1e-300)) == pytest.approx(4.5)
    assert expected_digit(np.zeros(10)) == pytest.approx(4.5)
    assert expected_digit(np.array([0.0] * 9 + [1000.0])) == pytest.approx(9)
