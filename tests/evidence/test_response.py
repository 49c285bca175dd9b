import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrjax.errors import InputError
from vrjax.evidence import Evidence, Fault, Span, format_response, parse_line, parse_response

GOOD = (
    "<evidence>\nTime:00:07-00:19, Des: A woman ties a rope.\nTime:00:21-00:40, Des: The boat, red: up.\n</evidence>\n"
    "<think>It holds.\nSo it can be pulled.</think>\n<answer>The boat is pulled ashore.</answer>"
)


def test_a_good_response():
    response = parse_response(GOOD, duration=60.2)
    assert response.well_formed
    assert [(line.span, line.description) for line in response.evidence] == [
        (Span(7, 19), "A woman ties a rope."),
        (Span(21, 40), "The boat, red: up."),
    ]
    assert response.reasoning == "It holds.\nSo it can be pulled."
    assert response.answer == "The boat is pulled ashore."
    assert not response.faults


@pytest.mark.parametrize(
    ("line", "span", "faults"),
    [
        ("Time:00:01-00:02, Des: x", (1, 2), ()),
        ("time: 1.5s – 2.5s, Des: x", (1.5, 2.5), ()),
        ("Time:01:00:01-01:00:02, Des: x", (3601, 3602), (Fault.PAST_END,)),
        ("Time:00:01 00:02, Des: x", None, (Fault.MISSING_DASH,)),
        ("Time:00:01, Des: x", None, (Fault.MISSING_DASH,)),
        ("Time:00:09-00:02, Des: x", None, (Fault.REVERSED,)),
        ("Time:00:09-00:02, Des:", None, (Fault.REVERSED, Fault.EMPTY_DESCRIPTION)),
        ("Time:00:02-00:02, Des: x", (2, 2), (Fault.ZERO_LENGTH,)),
        ("Time:00:50-01:01, Des: x", (50, 61), ()),  # 60.2 s on a clock of whole seconds may read 61
        ("Time:00:50-01:02, Des: x", (50, 62), (Fault.PAST_END,)),
        ("Time:soon-later, Des: x", None, (Fault.NOT_A_TIME,)),
        ("Time:00:75-00:80, Des: x", None, (Fault.NOT_A_TIME,)),
        ("Time:, Des: x", None, (Fault.NOT_A_TIME,)),
        ("Time:00:01-00:02, Des:  ", (1, 2), (Fault.EMPTY_DESCRIPTION,)),
        ("Time:00:01-00:02, 00:05-00:07, Des: x", (1, 2), (Fault.SEVERAL_RANGES,)),
        ("Time:00:01-00:02, x", None, (Fault.MISSING_DESCRIPTION_MARKER,)),
        ("00:01-00:02, Des: x", None, (Fault.MISSING_TIME_MARKER,)),
        ("Time:00:01-00:02, Des: x Time:00:05-00:06, Des: y", (1, 2), (Fault.JOINED_LINES,)),
    ],
)
def test_each_departure_of_a_line_has_its_name(line, span, faults):
    read = parse_line(line, duration=60.2)
    assert read.span == (None if span is None else Span(*span))
    assert read.faults == faults


def test_unreadable_and_surplus_lines_stay_predictions():
    lines = "\n".join(["Time:00:01-00:02, Des: x"] * 4 + ["nothing to see", "Time:00:05-00:04, Des: y"])
    response = parse_response(GOOD.replace("Time:00:07-00:19, Des: A woman ties a rope.", lines))
    assert len(response.evidence) == 7
    assert response.faults == {Fault.MORE_THAN_FIVE_LINES: 1, Fault.MISSING_TIME_MARKER: 1, Fault.REVERSED: 1}
    assert response.well_formed  # the format reward is about the blocks only


def test_lines_out_of_time_order_are_named():
    response = parse_response("<evidence>Time:5-6, Des: x\nTime:1-2, Des: y</evidence><think></think><answer></answer>")
    assert response.faults == {Fault.NOT_IN_TIME_ORDER: 1}


E, T, A = "<evidence>Time:1-2, Des: x</evidence>", "<think>t</think>", "<answer>a</answer>"


# KNOWN_FAILURES 34: no DOTALL, and duplicated tags that pass. The right column is what remains readable.
@pytest.mark.parametrize(
    ("text", "faults", "lines", "answer"),
    [
        (E + A + T, {"blocks_out_of_order": 1}, 1, "a"),
        (E + T + A + A.replace("a<", "b<"), {"duplicate_block": 1}, 1, "a"),
        (E + E + T + A, {"duplicate_block": 1}, 1, "a"),
        (E + T + "<answer>a", {"unbalanced_block": 1}, 1, "a"),
        (E + "<think>t" + A, {"unbalanced_block": 1}, 1, "a"),
        (E + T + A + "</answer>", {"unbalanced_block": 1}, 1, "a"),
        (E + T, {"missing_block": 1}, 1, ""),
        ("Sure! " + E + T + A, {"text_outside_blocks": 1}, 1, "a"),
        (E + "so" + T + A, {"text_outside_blocks": 1}, 1, "a"),
        (E + T + A + "!", {"text_outside_blocks": 1}, 1, "a"),
        ("x" + E + A + T, {"blocks_out_of_order": 1, "text_outside_blocks": 1}, 1, "a"),
        ("<think>t" + E + "</think>" + A, {"blocks_out_of_order": 1}, 1, "a"),
        ("<evidence>" + T + "</evidence>" + A, {"blocks_out_of_order": 1, "missing_time_marker": 1}, 1, "a"),
        ("", {"missing_block": 3}, 0, ""),
        ("The boat.", {"missing_block": 3, "text_outside_blocks": 1}, 0, ""),
    ],
)
def test_each_departure_of_the_blocks_has_its_name(text, faults, lines, answer):
    response = parse_response(text)
    assert not response.well_formed
    assert response.faults == faults
    assert len(response.evidence) == lines
    assert response.answer == answer


@pytest.mark.parametrize("text", [E + T + A, f"\n {E}\n\n{T} \n{A}\n", E + "<think>a\nb\n\nc</think>" + A])
def test_white_space_and_line_breaks_keep_the_format(text):
    response = parse_response(text)
    assert response.well_formed
    assert not response.faults


pieces = st.sampled_from(
    ["<evidence>", "</evidence>", "<think>", "</think>", "<answer>", "</answer>", "Time:", "Des:", "00:12", "-", "9",
     ":", ", ", "\n", "\r", "x", "and", "\u2028", "\ud800", "。"]
)  # fmt: skip


@given(st.text() | st.lists(pieces, max_size=30).map("".join), st.none() | st.floats(0, 1e4))
def test_reading_never_raises_and_names_what_is_wrong(text, duration):
    response = parse_response(text, duration)
    structural = {
        Fault.MISSING_BLOCK,
        Fault.DUPLICATE_BLOCK,
        Fault.UNBALANCED_BLOCK,
        Fault.BLOCKS_OUT_OF_ORDER,
        Fault.TEXT_OUTSIDE_BLOCKS,
    }
    assert response.well_formed == (not structural & set(response.response_faults))
    for line in response.evidence:
        assert line.span is not None or line.faults


words = st.text(st.characters(exclude_characters="<", exclude_categories=("Cs",)), max_size=40)
described = words.filter(lambda text: text.split() and "time" not in text.lower())
evidence = st.lists(
    st.builds(lambda s, n, d: Evidence(Span(s, s + n), d), st.integers(0, 9000), st.integers(1, 500), described),
    max_size=5,
)


@given(evidence, words, words)
def test_what_is_written_is_read_back(pieces_, reasoning, answer):
    response = parse_response(format_response(pieces_, reasoning, answer), duration=9500)
    assert response.well_formed
    assert not response.faults
    assert response.reasoning == reasoning.strip()
    assert response.answer == answer.strip()
    want = sorted(((p.span, " ".join(p.description.split())) for p in pieces_), key=lambda pair: pair[0])
    assert [(line.span, line.description) for line in response.evidence] == want


def test_writing_refuses_what_could_not_be_read_back():
    piece = Evidence(Span(1, 2), "x")
    for bad in ([piece] * 6, [Evidence(None, "x")], [Evidence(Span(1, 1), "x")], [Evidence(Span(1, 2), " ")]):
        with pytest.raises(InputError):
            format_response(bad, "", "")
    with pytest.raises(InputError, match="</think>"):
        format_response([piece], "a</think>", "b")
