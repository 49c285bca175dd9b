"""JSON in what models write: what is understood, and what is an error rather than a guess."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrjax.llm import extract_json
from vrjax.llm.json_text import find_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e6, 1e6) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=4)
# Words around an object hold no brackets, and no marks of thought.
WORDS = st.text(st.characters(exclude_characters="{}[]<>", exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize(
    ("text", "value", "repairs"),
    [
        ('{"a": 1}', {"a": 1}, ()),
        ('```json\n{"a": 1}\n```', {"a": 1}, ("text_around",)),
        ('Here: {"a": {"b": [1, {"c": 2}]}} Done.', {"a": {"b": [1, {"c": 2}]}}, ("text_around",)),
        ('{"a": [1, 2,], }', {"a": [1, 2]}, ("trailing_comma",)),
        ('{"a": "x,}", }', {"a": "x,}"}, ("trailing_comma",)),
        ("{'a': 'it\\'s', 'b': None, 'c': True}", {"a": "it's", "b": None, "c": True}, ("python_literal",)),
        ("{'a': true, 'b': null}", {"a": True, "b": None}, ("python_literal",)),
        ("So: {'a': \"don't {\"}!", {"a": "don't {"}, ("text_around", "python_literal")),
        ('{"a": "two\nlines"}', {"a": "two\nlines"}, ()),
        ('As [1] says {"a": 1}', {"a": 1}, ("text_around",)),
        ("Use {x} here. [1, 2]", [1, 2], ("text_around",)),
        ('{"a": 1}\n{"a": 1}', {"a": 1}, ("text_around",)),
        ('<think>perhaps {"a": 0}</think>\n{"a": 1}', {"a": 1}, ("text_around",)),
        ('<think>a</think> {"a": 1} <think>{"a": 2', {"a": 1}, ("text_around",)),
        ("4", 4, ()),
    ],
)
def test_what_is_understood(text, value, repairs):
    found = find_json(text)
    assert (found.value, found.repairs) == (value, repairs)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"), ("'no' 'yes'", "no JSON"),
        ("I cannot say.", "no JSON"), ("<html><body>{</body></html>", "cut off"),
        ('{"a": NaN}', "NaN"), ('{"a": -Infinity}', "Infinity"), ('{"a": 1e999}', "finite"), ("{'a': nan}", "nan"),
        ("{'a': 1e999}", "finite"), ('{"a": 1, "a": 2}', "twice"), ("{'a': 1, 'a': 2}", "twice"),
        ('{"a": 1} or {"a": 2}', "several different"),
        ('{"outer": {"a": 1}, "b": ', "cut off"),  # what is inside a cut-off object is not the object
        ('<think>{"a": 1}', "no JSON"), ("{'a': __import__('os').getcwd()}", "not valid"),
        ("{'a': {1, 2}}", "not valid"), ("{'a': 1j}", "not valid"), ("{'a': b'x'}", "not valid"),
        ("{1: 2}", "not valid"), ("{**{'a': 1}}", "not valid"),
    ],
)  # fmt: skip
def test_what_is_refused(text, problem):
    with pytest.raises(ValueError, match=problem):
        extract_json(text)


HOSTILE = [
    "[" * 200_000,
    "{" * 200_000,
    '{"a":' * 50_000,
    "{'" * 50_000,
    '{"' * 50_000 + "}",
    "(" * 9999,
    " '" * 50_000,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_depth_and_length_end_in_an_error(text):
    with pytest.raises(ValueError, match=r"\w"):
        extract_json(text)


@given(OBJECTS, WORDS, WORDS)
def test_an_object_is_found_whatever_words_surround_it(value, before, after):
    assert extract_json(f"{before}\n{json.dumps(value)}\n{after}") == value
    assert extract_json(f"```json\n{json.dumps(value, indent=1, ensure_ascii=False)}\n```") == value


@given(OBJECTS)
def test_a_python_literal_gives_the_same(value):
    assert extract_json(repr(value)) == value


@given(st.text(max_size=60) | st.text("{}[],:'\"\\ aN1.", max_size=40))
def test_anything_else_is_a_value_of_finite_numbers_or_a_value_error(text):
    try:
        value = extract_json(text)
    except ValueError:
        return
    json.dumps(value, allow_nan=False)
