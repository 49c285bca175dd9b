"""`vrjax-data review STEP`: let people judge, in one SQLite file.

add       items from the stages' files
serve     the page
export    decisions.jsonl, audited.jsonl, segment_edits.jsonl, ratings.jsonl, verified.jsonl, undecided.jsonl, log.jsonl
table     means and agreement, as MovieCORE's Table S1
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from data_tools.stage_output import print_figures, say

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
INSTALL = "pip install 'vrjax[review]'"


@dataclass(frozen=True)
class Add:
    """Take what is to be judged into the database. Items that are there already stay as they are.

    adjudicate   accept, reject or edit questions: queue.jsonl
    audit        is an item of the audit's sample right as it is? audit.jsonl
    segments     correct segments before generation: raw.jsonl
    verify       rate questions, answers and captions: MovieCORE's train.json, captions.json, annotations.jsonl

    Examples::

        vrjax-data review add --database eg.sqlite --task adjudicate --files eg/queue.jsonl
        vrjax-data review add --database mc.sqlite --task verify --files mc/test.json mc/captions.json --raters 2
    """

    database: Path
    """The review database; made where there is none."""
    task: Literal["adjudicate", "audit", "segments", "verify"]
    """What people are to do."""
    files: tuple[Path, ...]
    """Files of the stages."""
    raters: int | None = None
    """People who judge each item, none of whom sees the others' answers; default 2 to verify, else 1."""
    limit: int | None = None
    """Only the first so many items of each file."""
    low_at: int | None = None
    """A rating of so much or less sends an item to a meta-reviewer; default 2, kept in the database."""
    json: Flag = False
    """Print the counts as JSON."""

    def run(self) -> int:
        from data_tools.review.items import read_items
        from data_tools.review.store import ReviewStore
        from vrjax.errors import InputError

        raters = (2 if self.task == "verify" else 1) if self.raters is None else self.raters
        if raters < 1:
            raise InputError(f"{raters} raters cannot judge an item. Give 1 or more.")
        if self.low_at is not None and not 0 <= self.low_at <= 5:
            raise InputError(f"low-at {self.low_at} is no rating. Give 1 to 5, or 0 for no meta-review.")
        if not self.files:
            raise InputError("no file is given. Name what the stage before has written.")
        items = [one for path in self.files for one in read_items(self.task, path)[: self.limit]]
        store = ReviewStore(self.database)
        if self.low_at is not None:
            store.setting("low_at", self.low_at)
        print_figures(store.add(self.task, items, raters), self.json)
        return 0


@dataclass(frozen=True)
class Serve:
    """Serve the page on which people judge. Every answer is on disk before the page goes on; stop it at any time.

    Examples::

        vrjax-data review serve --database eg.sqlite --videos videos
        REVIEW_PASSWORD=… vrjax-data review serve --database eg.sqlite --videos videos --host 0.0.0.0
    """

    database: Path
    """The review database."""
    videos: Path | None = None
    """Folder of the video files."""
    host: str = "127.0.0.1"
    """Address to listen at. Any but loopback needs a password."""
    port: int = 7860
    """Port; 0 takes a free one."""
    password_env: str = "REVIEW_PASSWORD"
    """Name of the environment variable that holds the password. Raters give it with any name of their own."""
    lease_minutes: float = 30.0
    """Minutes for which an opened item is its rater's, from the page's last sign of life."""

    def run(self) -> int:
        import os
        import socket

        from data_tools.review.gate import LOOPBACK
        from data_tools.review.store import ReviewStore
        from vrjax.errors import InputError, RunError

        password = os.environ.get(self.password_env) or None
        if self.host not in LOOPBACK and password is None:
            raise InputError(
                f"{self.host} can be reached from elsewhere. Set a password in the variable {self.password_env}, or "
                "serve on 127.0.0.1."
            )
        if self.videos is not None and not self.videos.is_dir():
            raise InputError(f"{self.videos}: is no folder. Name the folder of the videos.")
        store = ReviewStore(self.database, lease_s=60 * self.lease_minutes, create=False)
        if not store.progress():
            raise InputError(f"{self.database}: holds no items. Add some with `vrjax-data review add`.")
        try:
            import gradio  # noqa: F401
            import uvicorn
        except ImportError as error:
            raise InputError(f"gradio is not installed. Install it with: {INSTALL}") from error
        from data_tools.review.page import build_app

        app = build_app(store, self.videos, password)
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((self.host, self.port))
        except OSError as error:
            raise RunError(
                f"{self.host}:{self.port}: cannot be used ({error.strerror}). Give another --port."
            ) from error
        shown = f"[{self.host}]" if ":" in self.host else self.host
        say(f"review page: http://{shown}:{listening.getsockname()[1]}/   (Ctrl-C stops it)")
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])
        return 0


@dataclass(frozen=True)
class Export:
    """Write what people said, as the next stages read it.

    decisions.jsonl       for `eg-vqa assemble --decisions`
    audited.jsonl         for `eg-vqa audit --verdicts`
    segment_edits.jsonl   for `eg-vqa curate --edits`
    verified.jsonl        for `moviecore export --verdicts`; ratings.jsonl has every rating
    undecided.jsonl       what waits, or was judged differently; log.jsonl every answer ever given

    Examples::

        vrjax-data review export --database eg.sqlite --out eg
        vrjax-data eg-vqa assemble --work eg --decisions eg/decisions.jsonl
    """

    database: Path
    """The review database."""
    out: Path
    """Folder for the files. Tasks without items write none."""
    json: Flag = False
    """Print the counts as JSON."""

    def run(self) -> int:
        from data_tools.review import results
        from data_tools.review.store import ReviewStore, Task
        from data_tools.stage_files import write_rows

        store = ReviewStore(self.database, create=False)
        there = store.progress()
        contents: dict[str, list[results.Row]] = {}
        undecided: list[results.Row] = []
        judged: tuple[tuple[Task, str], ...] = (("adjudicate", "decisions.jsonl"), ("audit", "audited.jsonl"))
        for task, name in judged:
            if task in there:
                contents[name], waiting = results.decisions(store, task)
                undecided += [{"task": task, **row} for row in waiting]
        if "segments" in there:
            contents["segment_edits.jsonl"] = results.segment_edits(store)
        if "verify" in there:
            contents["ratings.jsonl"] = results.ratings(store)
            contents["verified.jsonl"] = results.verified(store)
        contents |= {"undecided.jsonl": undecided, "log.jsonl": store.log()}
        write_rows({self.out / name: rows for name, rows in contents.items()})
        print_figures({"progress": there, "rows": {name: len(rows) for name, rows in contents.items()}}, self.json)
        return 0


@dataclass(frozen=True)
class Table:
    """Print means and agreement (percent, Cohen's and Fleiss' κ) in the form of MovieCORE's Table S1.

    Examples::

        vrjax-data review table --database mc.sqlite
        vrjax-data review table --database mc.sqlite --out verification.md --json
    """

    database: Path
    """The review database."""
    out: Path | None = None
    """Write the Markdown to this file too."""
    json: Flag = False
    """Print JSON instead."""

    def run(self) -> int:
        from data_tools.review.results import markdown, results
        from data_tools.review.store import ReviewStore
        from vrjax.evaluation.official_files import write_whole

        found = results(ReviewStore(self.database, create=False))
        text = markdown(found)
        if self.out is not None:
            write_whole({self.out: text})
        print(json.dumps(found, indent=1) if self.json else text, end="\n" if self.json else "")
        return 0


Review = (
    Annotated[Add, tyro.conf.subcommand("add")]
    | Annotated[Serve, tyro.conf.subcommand("serve")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Table, tyro.conf.subcommand("table")]
)
