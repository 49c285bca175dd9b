"""Distributions and word cloud (MovieCORE, Figures 4 and 8 in form), and the page that holds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_tools.cognitive.parse_depth import INSTALL
from data_tools.cognitive.summary import HEADINGS, Dataset, table_rows, zero_note
from data_tools.figure_svg import svg
from vrjax.errors import InputError

PANELS = {
    "parse_depth": ("Parse depth", 0.5),
    "flesch_kincaid": ("Flesch-Kincaid grade", 2.0),
    "bloom": ("Bloom level", 1.0),
}


def distributions(datasets: Sequence[Dataset]) -> str:
    """Histograms of each metric as SVG: questions above, answers below, a line a dataset."""
    import numpy as np
    from matplotlib.figure import Figure

    shown = [name for name in PANELS if any(_values(one.questions.columns[name]) for one in datasets)]
    canvas = Figure(figsize=(3.6 * max(1, len(shown)), 4.6), layout="constrained")
    axes = canvas.subplots(2, max(1, len(shown)), squeeze=False)
    for column, name in enumerate(shown):
        title, width = PANELS[name]
        for row, side in enumerate(("questions", "answers")):
            axis = axes[row, column]
            for one in datasets:
                values = np.array(_values(getattr(one, side).columns[name]))
                if values.size:
                    low, high = np.quantile(values, [0.001, 0.999])
                    edges = np.arange(np.floor(low / width) - 0.5, np.ceil(high / width) + 1.5) * width
                    heights, _ = np.histogram(values, edges)
                    axis.stairs(heights / values.size, edges, label=one.name, linewidth=1.4)
            axis.set_title(f"{title}, {side}", fontsize=10)
            axis.set_ylabel("share of texts", fontsize=8)
            axis.tick_params(labelsize=8)
            axis.spines[["top", "right"]].set_visible(False)
    if len(datasets) > 1:
        axes[0, 0].legend(fontsize=8, frameon=False)
    return svg(canvas)


def word_cloud(words: Counter[str], seed: int = 0) -> str:
    """The cloud as SVG. Raises InputError where the wordcloud package is missing."""
    try:
        from wordcloud import STOPWORDS, WordCloud
    except ImportError as error:
        raise InputError(f"wordcloud is not installed. Install it with: {INSTALL}") from error
    left = {word: number for word, number in words.items() if word not in STOPWORDS and len(word) > 2}
    if not left:
        return ""
    cloud = WordCloud(width=900, height=450, background_color="white", random_state=seed, max_words=120)
    # With its font, of which the layout was made; with a viewBox, so that it fits any width.
    text = cloud.generate_from_frequencies(left).to_svg(embed_font=True)
    return text[text.index("<svg") :].replace("<svg", f'<svg viewBox="0 0 {cloud.width} {cloud.height}"', 1)


def write_page(path: Path, datasets: Sequence[Dataset], summaries: Sequence[dict[str, Any]], cloud: str) -> None:
    """`report.html` with the comparison, the distributions and the cloud."""
    from vrjax.evaluation.report import Figure, Table, write_report

    counted = [
        f"{one['dataset']}, {side}: {one[side]['texts']} texts, {one[side]['empty']} empty; grades by rule: "
        + ", ".join(f"{name} {value:.2f}" for name, value in one[side]["flesch_kincaid_by_rule"].items())
        for one in summaries
        for side in ("questions", "answers")
    ]
    counted += [note for one in summaries if (note := zero_note(one))]
    sections: list[Any] = [
        Table("Comparison", HEADINGS, table_rows(summaries), counted),
        Figure("Distributions", distributions(datasets)),
    ]
    if cloud:
        sections.append(Figure("Words", cloud))
    write_report(path, "How deep the questions are", ", ".join(one.name for one in datasets), sections)


def _values(column: Sequence[float | None]) -> list[float]:
    return [value for value in column if value is not None]
