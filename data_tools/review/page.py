"""The Gradio page: the item under review as a component of its own, and a table of progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_tools.review.gate import Gate
from data_tools.review.server import ReviewApi
from data_tools.review.store import ReviewStore

if TYPE_CHECKING:
    import gradio

FOLDER = Path(__file__).parent
SCRIPTS = ("times.js", "timeline.js", "forms.js", "page.js")
COLUMNS = ("task", "items", "done", "answers")


def build_app(store: ReviewStore, videos: Path | None, password: str | None) -> Any:
    """The ASGI app of the page and its requests."""
    import os

    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    import gradio
    from fastapi import FastAPI
    from gradio.themes import Base

    app = FastAPI(title="vrjax review", docs_url=None, redoc_url=None, openapi_url=None)
    ReviewApi(store, videos).routes(app)
    system = ["system-ui", "Segoe UI", "Roboto", "sans-serif"]
    theme = Base(font=system, font_mono=["ui-monospace", "monospace"])
    mounted = gradio.mount_gradio_app(
        app, _blocks(gradio, store, password is not None), path="", ssr_mode=False, theme=theme, footer_links=[],
        run_history=False, css=(FOLDER / "page.css").read_text(), allowed_paths=[], show_error=False,
    )  # fmt: skip
    return Gate(mounted, password)


def _blocks(gradio: Any, store: ReviewStore, named: bool) -> gradio.Blocks:
    script = "\n".join((FOLDER / name).read_text() for name in SCRIPTS)
    with gradio.Blocks(title="vrjax review", analytics_enabled=False, fill_width=True) as page:
        with gradio.Tab("Review"):
            gradio.HTML(
                html_template='<div class="review" data-named="${named}"></div>',
                js_on_load=f"{script}\nstartReview(element.querySelector('.review'));",
                named="yes" if named else "",
                apply_default_css=False,
            )
        with gradio.Tab("Progress") as progress:
            table = gradio.Dataframe(lambda: _progress(store), headers=list(COLUMNS), interactive=False, wrap=True)
            progress.select(lambda: _progress(store), outputs=table, show_progress="hidden")
    return page


def _progress(store: ReviewStore) -> list[list[Any]]:
    """A row a task. Counts alone: nobody sees what others said."""
    return [
        [task, found["items"], found["done"], sum(found["by_rater"].values())]
        for task, found in store.progress().items()
    ]
