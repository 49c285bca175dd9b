from itertools import permutations

import numpy as np
import pytest

from vrjax.evidence import Evidence, Span, TokenSimilarity, eg_f1, event_f1, evidence_reward_parts, soft_eg_f1
from vrjax.evidence.matching import event_matches, hard_match, pair_matrices, soft_match

# Golden `egf1_A`, with its values as literals.
G = [Evidence(Span(10, 20), "a"), Evidence(Span(30, 50), "b")]
P = [Evidence(Span(12, 22), "c"), Evidence(Span(28, 40), "d"), Evidence(Span(60, 70), "e")]
S = np.array([[0.9, 0.3, 0.2], [0.4, 0.8, 0.1]])


@pytest.mark.parametrize(
    ("alpha", "beta", "matched", "precision", "recall", "f1"),
    [(0.3, 0.5, 2, 2 / 3, 1.0, 0.8), (0.3, 0.75, 2, 2 / 3, 1.0, 0.8), (0.5, 0.75, 1, 1 / 3, 0.5, 0.4)],
)
def test_golden_hard(alpha, beta, matched, precision, recall, f1):
    score = eg_f1(G, P, S, alpha, beta)
    assert (score.matched, score.precision, score.recall) == (matched, pytest.approx(precision), recall)
    assert score.f1 == pytest.approx(f1)


def test_golden_soft_and_both_rewards():
    assert soft_eg_f1(G, P, S).f1 == pytest.approx(0.385455, abs=5e-7)
    assert evidence_reward_parts(G, P, S) == (pytest.approx(0.385455, abs=5e-7), pytest.approx(0.8))
    released = evidence_reward_parts(G, P, S, variant="released")
    assert released == (pytest.approx(0.564242, abs=5e-7), pytest.approx(0.8))


def test_the_two_rewards_differ_where_matching_does():
    # One reference; the first prediction overlaps fully and says something else, the second the reverse.
    references = [Evidence(Span(0, 10), "r")]
    predictions = [Evidence(Span(0, 10), "p"), Evidence(Span(0, 4), "q")]
    similar = np.array([[0.45, 0.95]])
    # paper: soft .45 against .38, hard only the second passes; released: .725 against .675, and that match fails .5.
    assert evidence_reward_parts(references, predictions, similar) == (pytest.approx(0.3), pytest.approx(2 / 3))
    released = evidence_reward_parts(references, predictions, similar, variant="released")
    assert released == (pytest.approx(2 * 0.725 / 3), 0.0)


@pytest.mark.parametrize("span", [None, Span(5, 5)])
def test_golden_unusable_predictions_stay_in_p(span):
    references = [Evidence(Span(0, 10), "x")]
    predictions = [Evidence(Span(0, 10), "x"), Evidence(span, "x")]
    score = eg_f1(references, predictions, TokenSimilarity())
    assert (score.matched, score.precision, score.recall) == (1, 0.5, 1.0)
    assert score.f1 == pytest.approx(2 / 3)
    assert event_f1(references, predictions).f1 == pytest.approx(2 / 3)


def test_an_unusable_prediction_has_no_similarity_even_in_the_released_reward():
    references = [Evidence(Span(0, 10), "x")]
    assert evidence_reward_parts(references, [Evidence(None, "x")], TokenSimilarity(), "released") == (0.0, 0.0)


@pytest.mark.parametrize(("references", "predictions", "want"), [([], [], 1.0), (G, [], 0.0), ([], P, 0.0)])
def test_golden_empty(references, predictions, want):
    for score in (
        eg_f1(references, predictions, TokenSimilarity()),
        soft_eg_f1(references, predictions, TokenSimilarity()),
        event_f1(references, predictions),
    ):
        assert (score.matched, score.precision, score.recall, score.f1) == (0, want, want, want)
    assert references or evidence_reward_parts(references, predictions, TokenSimilarity()) == (0.0, 0.0)


def test_weight_is_maximised_and_not_the_count():
    # Two weak pairs pass, yet one strong pair weighs more.
    overlap = np.array([[0.95, 0.31], [0.31, 0.0]])
    assert hard_match(overlap, np.ones((2, 2)), 0.3, 0.5).matched == 1


def test_wrong_similarity_arrays_are_refused():
    with pytest.raises(ValueError, match="shape"):
        pair_matrices(G, P, S.T)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        pair_matrices(G, P, S + 0.5)
    with pytest.raises(ValueError, match="variant"):
        evidence_reward_parts(G, P, S, variant="other")  # type: ignore[arg-type]


def _all_assignments(rows: int, columns: int):
    if rows <= columns:
        for chosen in permutations(range(columns), rows):
            yield list(zip(range(rows), chosen, strict=True))
    else:
        for chosen in permutations(range(rows), columns):
            yield list(zip(chosen, range(columns), strict=True))


def _best_pairs(weights: np.ndarray) -> list[tuple[int, int]]:
    return max(_all_assignments(*weights.shape), key=lambda pairs: sum(weights[pair] for pair in pairs))


def test_brute_force_over_all_assignments():
    """1,000 random questions against every one-to-one assignment, with IoU worked out anew as overlap over union."""
    random = np.random.default_rng(0)
    for _ in range(1000):
        rows, columns = (int(n) for n in random.integers(1, 6, 2))
        starts, lengths = random.uniform(0, 20, rows + columns), random.uniform(1, 15, rows + columns)
        pieces = [Evidence(Span(s, s + n), "") for s, n in zip(starts, lengths, strict=True)]
        references, predictions = pieces[:rows], pieces[rows:]
        ends = starts + lengths
        shared = np.minimum(ends[:rows, None], ends[None, rows:]) - np.maximum(starts[:rows, None], starts[None, rows:])
        shared = np.maximum(shared, 0)
        overlap = shared / (lengths[:rows, None] + lengths[None, rows:] - shared)
        similar = random.uniform(0, 1, (rows, columns))
        total = rows + columns

        soft = sum((overlap * similar)[pair] for pair in _best_pairs(overlap * similar))
        assert soft_eg_f1(references, predictions, similar).f1 == pytest.approx(2 * soft / total)
        for alpha, beta in ((0.3, 0.5), (0.3, 0.75), (0.5, 0.75), (0.1, 0.1)):
            weights = np.where((overlap >= alpha) & (similar >= beta), overlap * similar, 0)
            matched = sum(weights[pair] > 0 for pair in _best_pairs(weights))
            score = eg_f1(references, predictions, similar, alpha, beta)
            assert score.matched == matched
            assert score.f1 == pytest.approx(2 * matched / total)
        best = _best_pairs(overlap)
        for tau in (0.1, 0.3, 0.5, 0.7):
            assert event_f1(references, predictions, tau).matched == sum(overlap[pair] >= tau for pair in best)
        released = _best_pairs((overlap + similar) / 2)
        soft_reward = 2 * sum((overlap[pair] + similar[pair]) / 2 for pair in released) / total
        hard_reward = 2 * sum(overlap[pair] >= 0.3 and similar[pair] >= 0.5 for pair in released) / total
        parts = evidence_reward_parts(references, predictions, similar, "released")
        assert parts == (pytest.approx(soft_reward), pytest.approx(hard_reward))


def test_event_thresholds_share_one_assignment():
    # At .5 the assignment by summed IoU keeps one pair, although another assignment would pass two at .3.
    overlap = np.array([[0.9, 0.35], [0.35, 0.0]])
    assert [score.matched for score in event_matches(overlap, (0.1, 0.3, 0.5))] == [1, 1, 1]
    assert soft_match(overlap, np.ones((2, 2))).matched == pytest.approx(0.9)
