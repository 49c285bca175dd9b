import pytest

from vrjax.evidence import exact_match, token_f1


# By hand with the rules of SQuAD v1.1's script.
@pytest.mark.parametrize(
    ("reference", "response", "exact", "f1"),
    [
        ("The boat is pulled ashore.", "the boat is pulled ashore", 1, 1),
        ("a red rope", "red rope", 1, 1),
        ("red rope", "rope red", 0, 1),
        ("red rope", "red boat", 0, 0.5),
        ("one two three", "one", 0, 0.5),
        ("b b c", "b c c", 0, 2 / 3),
        ("red", "", 0, 0),
        ("", "", 1, 1),
        ("Straße", "STRASSE", 1, 1),
    ],
)
def test_normalised_words_are_compared(reference, response, exact, f1):
    assert exact_match(reference, response) == exact
    assert token_f1(reference, response) == pytest.approx(f1)
