"""Replies, histories, transcripts, strategies, scored runs: the pieces without a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrjax.agents import MODES, TOOLS, QuestionRun, Trace, Video, load_tools
from vrjax.agents.critic import load_examples, save_examples, shuffled
from vrjax.agents.crossing import as_json, bounded_repr, from_json
from vrjax.agents.history import Turn, fit
from vrjax.agents.modes import plan_work
from vrjax.agents.program_text import read_reply
from vrjax.agents.scored_runs import check_scores, choose_examples, rank_subsets
from vrjax.agents.strategies import default_strategies, every_subset, parse_strategy
from vrjax.agents.tools.speech import pieces
from vrjax.errors import InputError
from vrjax.llm import Message
from vrjax.video.transcript import Utterance

KNOWN = {tool.name: tool for tool in TOOLS}

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.builds(Video, st.floats(0, 9), st.floats(10, 20)),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=12,
)  # fmt: skip


@given(plain)
def test_values_come_back_from_json_as_they_were(value):
    import json

    assert from_json(json.loads(json.dumps(as_json(value)))) == value


@given(plain)
def test_the_bounded_repr_is_the_repr_where_it_fits(value):
    assert bounded_repr(value, 10**6) == repr(value)
    assert len(bounded_repr(value, 20)) <= 21


@pytest.mark.parametrize(
    ("text", "thought", "program"),
    [
        ("Look.\n```python\nx = 1\n```\nThen more.", "Look.\nThen more.", "x = 1"),
        ("```\nx = 1\n```", "", "x = 1"),
        ("~~~py\nx = '```'\n~~~", "", "x = '```'"),
        ("````python\nx = '''\n```\n'''\n````", "", "x = '''\n```\n'''"),
        ("In line `code` stays.\n```python\nx\n```", "In line `code` stays.", "x"),
    ],
)
def test_the_one_block_of_a_reply(text, thought, program):
    read = read_reply(text)
    assert (read.thought, read.program, read.problem) == (thought, program, None)


def test_a_history_loses_its_oldest_results_first():
    head = (Message.system("s" * 10), Message.user("q" * 10))
    turns = [Turn(f"```python\n{n}\n```", str(n), letter * 1000) for n, letter in enumerate("abc")]
    whole, left_out = fit(head, turns, "", 10_000)
    assert left_out == 0
    assert [message.text for message in whole[3::2]] == ["a" * 1000, "b" * 1000, "c" * 1000]
    cut, left_out = fit(head, turns, "tail", 2_500)
    assert left_out == 1
    assert "left out to save room: 1000 characters" in cut[3].text
    assert cut[5].text == "b" * 1000
    assert cut[7].text == "c" * 1000 + "\n\ntail"
    assert fit(head, turns, "", 10)[0][7].text == "c" * 1000  # the last one stays


def test_a_transcript_is_cut_between_its_lines():
    lines = [Utterance(n, n + 1, "word " * n) for n in range(40)]
    found = pieces(lines, 500)
    assert max(map(len, found)) <= 500
    assert "\n".join(found).split("\n") == [f"[{n:.1f}-{n + 1:.1f}] {'word ' * n}" for n in range(40)]
    long = pieces([Utterance(0, 1, "x" * 1200)], 500)
    assert "".join(long) == "[0.0-1.0] " + "x" * 1200
    assert pieces([], 500) == []


def test_strategies():
    assert default_strategies("qa", False) == ("all", "get_segment+retrieval_qa", "direct:retrieval_qa")
    assert default_strategies("localise", True) == ("all", "get_segment+find_when", "direct:find_when")
    every = parse_strategy("all", KNOWN, "qa", speech=False).tools
    assert set(every) == set(KNOWN) - {"asr_understanding"}
    assert parse_strategy("get_segment+find_when", KNOWN, "qa", False).tools == (
        "get_segment",
        "find_when",
        "think",
        "finish",
    )
    for text, said in (
        ("nothing", "no tool"),
        ("asr_understanding", "transcript"),
        ("direct:find_when", "alone"),
        ("", "no tool"),
    ):
        with pytest.raises(InputError, match=said):
            parse_strategy(text, KNOWN, "qa", False)
    # By hand: of get_segment, retrieval_qa, find_when all sets but the empty one and get_segment alone.
    assert every_subset(list(KNOWN), speech=False) == (
        "retrieval_qa", "find_when", "retrieval_qa+get_segment", "retrieval_qa+find_when", "get_segment+find_when",
        "retrieval_qa+get_segment+find_when",
    )  # fmt: skip
    assert len(every_subset(list(KNOWN), speech=True)) == 14
    for mode in MODES:
        assert plan_work(mode, KNOWN, "qa", True, subset="retrieval_qa")


def test_the_order_of_traces_depends_on_seed_and_question_alone():
    names = ["a", "b", "c", "d"]
    assert shuffled(names, 0, "q1") == shuffled(names, 0, "q1")
    assert len({tuple(shuffled(names, seed, "q1")) for seed in range(20)}) > 5
    first = [shuffled(names, 0, f"q{n}")[0] for n in range(400)]
    assert all(70 < first.count(name) < 130 for name in names)


def make_run(name: str, **answers: str | None) -> QuestionRun:
    traces = tuple(
        Trace(strategy=key, tools=(), outcome="finished" if answer else "no_answer", answer=answer)
        for key, answer in answers.items()
    )
    return QuestionRun(
        id=name, question=f"What of {name}?", kind="qa", video="v", start=0, end=1, mode="critic", seed=0, settings={},
        traces=traces,
    )  # fmt: skip


def test_examples_are_questions_that_tell_strategies_apart(tmp_path):
    runs = {name: make_run(name, all="A", some="B") for name in ("q1", "q2", "q3", "q4", "q5")}
    scores = {
        "q1": {"all": 1.0, "some": 1.0},  # tells nothing
        "q2": {"all": 1.0, "some": 0.0},
        "q3": {"all": 1.0, "some": 0.0},
        "q4": {"all": 0.0, "some": 1.0},
        "q5": {"all": None, "some": 1.0},  # not scored
    }
    found = choose_examples(runs, scores, 2, critiques={"q4": "some looked closer"})
    assert [(one.id, one.winners, one.critique) for one in found] == [
        ("q2", ("all",), ""),
        ("q4", ("some",), "some looked closer"),
    ]
    assert [one.id for one in choose_examples(runs, scores, 1, only={"q3"})] == ["q3"]
    with pytest.raises(InputError, match="3 questions can serve"):
        choose_examples(runs, scores, 4)
    save_examples(tmp_path / "e.json", found)
    assert load_examples(tmp_path / "e.json") == found
    (tmp_path / "e.json").write_text(found[0].model_dump_json().join("[]").replace('["all"]', '["none"]'))
    with pytest.raises(InputError, match="example q2: winners names"):
        load_examples(tmp_path / "e.json")


def test_the_best_subset_is_over_shared_questions():
    scores = {
        "q1": {"all": 0.0, "a+b": 1.0, "direct:a": 1.0},
        "q2": {"all": 1.0, "a+b": None, "direct:a": 1.0},
        "q3": {"all": 1.0},  # a+b was not run on it
    }
    ranked = rank_subsets(scores)
    assert [(one.strategy, one.mean, one.questions) for one in ranked] == [("a+b", 0.5, 2), ("all", 0.5, 2)]
    with pytest.raises(InputError, match="share no question"):
        rank_subsets({"q1": {"all": 1.0}, "q2": {"a": 1.0}})
    with pytest.raises(InputError, match="question q, strategy s"):
        check_scores({"q": {"s": "good"}}, "file")


def test_a_users_tools_come_from_a_file(tmp_path):
    path = tmp_path / "my_tools.py"
    path.write_text(
        "from vrjax.agents import ToolContext, Video, tool\n\n@tool\nasync def length(context: ToolContext, "
        "video: Video, scale: float = 1.0) -> float:\n    '''How long a part is.'''\n    return scale\n"
    )
    (one,) = load_tools(path)
    assert one.text == 'def length(video: Video, scale: float = 1.0) -> float:\n    """How long a part is."""'
    assert one.bind(Video(0, 9), [(1, 4)], {}) == {"video": Video(1, 4), "scale": 1.0}
    path.write_text("x = 1\n")
    with pytest.raises(InputError, match="defines no tool"):
        load_tools(path)
    path.write_text("1 / 0\n")
    with pytest.raises(InputError, match="line 1"):
        load_tools(path)
