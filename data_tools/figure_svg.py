"""matplotlib's figures as SVG for a page."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def svg(canvas: Figure) -> str:
    """The figure's markup, from `<svg` on. Text that a figure holds is escaped by matplotlib."""
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg")
    text = buffer.getvalue()
    return text[text.index("<svg") :]
