"""The report page: what models and datasets wrote stays text, and bars stand where the spans are."""

import re

import pytest

from vrjax.errors import InputError
from vrjax.evaluation.mismatch import other_video
from vrjax.evaluation.report import Card, Figure, Frame, Gallery, Table, curves, span_bar, write_report

EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>'


def test_text_of_models_and_datasets_is_escaped(tmp_path):
    bar = span_bar(0, 1, 4, EVIL)
    card = Card(EVIL, EVIL, False, EVIL, EVIL, [Frame("data:image/png;base64,AA==", EVIL)], [bar], [bar], EVIL)
    sections = [Table(EVIL, [EVIL], [[EVIL]], [EVIL]), Gallery(EVIL, [card])]
    write_report(tmp_path / "r.html", EVIL, EVIL, sections)
    page = (tmp_path / "r.html").read_text()
    assert "<script" not in page
    assert "<img src=x" not in page
    assert page.count("&lt;script&gt;") >= 12
    assert not (tmp_path / "r.partial").exists()


def test_the_page_needs_nothing_from_outside(tmp_path):
    write_report(tmp_path / "r.html", "t", "s", [Figure("loss", curves({"loss": {"a": ([1, 2], [0.5, 0.2])}}))])
    page = (tmp_path / "r.html").read_text()
    loads = re.findall(r"""(?:src|href)=["'](?!data:|#)([^"']*)""", page)
    assert [place for place in loads if not place.startswith("http://www.w3.org")] == []
    assert "<svg" in page


@pytest.mark.parametrize(
    ("start", "end", "duration", "left", "width"),
    [(2, 4, 8, 25, 25), (6, 12, 8, 75, 25), (9, 10, 8, 100, 0), (0, 8, 8, 0, 100), (3, 3, 8, 37.5, 0)],
)
def test_bars_stand_where_the_spans_are(start, end, duration, left, width):
    bar = span_bar(start, end, duration, "x")
    assert (bar.left, bar.width) == (left, width)


@pytest.mark.parametrize("count", [2, 3, 7, 240])
def test_a_mismatched_video_is_always_another_one_and_each_is_used_once(count):
    for seed in range(5):
        partner = other_video(count, seed)
        assert sorted(partner) == list(range(count))
        assert all(one != other for one, other in enumerate(partner))


def test_one_video_alone_cannot_be_mismatched():
    with pytest.raises(InputError, match="at least two"):
        other_video(1, 0)
