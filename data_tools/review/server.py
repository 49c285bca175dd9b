"""The review page's requests: JSON in, JSON out, beside the Gradio page that shows them.

    POST /review/state   {rater}                  tasks with their progress
    POST /review/next    {rater, task}            an item, leased to the rater
    POST /review/save    {rater, item, answer}    checked by its form and kept
    POST /review/later   {rater, item}            put aside
    POST /review/open    {rater, item}            an item that the rater answered, to change the answer
    POST /review/renew   {rater, item}            keeps the lease
    GET  /review/video/ITEM                       its video, with ranges

Errors are {error} with 404 or 422, and 409 where the item has gone to others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from data_tools.review.forms import DIMENSIONS, MEANINGS, check_answer
from data_tools.review.gate import LONGEST_NAME
from data_tools.review.items import find_video
from data_tools.review.store import TASKS, Item, ReviewStore, Taken, Task
from vrjax.errors import InputError, VrjaxError

Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_NAME)]
LARGEST_ITEM = 2**63  # of SQLite
LARGEST_BODY = 1_000_000  # bytes of one request


class Ascii(JSONResponse):
    """JSON with escapes, since texts of datasets may hold lone surrogates, which UTF-8 cannot."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


class Sent(BaseModel):
    """What the page sends."""

    model_config = ConfigDict(extra="forbid")
    rater: Name
    task: Task | None = None
    item: Annotated[int, Field(ge=1, lt=LARGEST_ITEM)] | None = None
    answer: Any = None


class ReviewApi:
    """The requests of a store. videos: folder of the video files, or None."""

    def __init__(self, store: ReviewStore, videos: Path | None) -> None:
        self.store, self.videos = store, videos

    def routes(self, app: FastAPI) -> None:
        for name in ("state", "next", "save", "later", "open", "renew"):
            app.add_api_route(f"/review/{name}", self._route(getattr(self, name)), methods=["POST"])
        app.add_api_route("/review/video/{item}", self.video, methods=["GET"], response_model=None)

    def _route(self, answer: Callable[[Sent], dict[str, Any]]) -> Any:
        async def route(request: Request) -> JSONResponse:
            from pydantic import ValidationError
            from starlette.concurrency import run_in_threadpool

            body = await request.body()
            if not request.headers.get("content-type", "").startswith("application/json") or len(body) > LARGEST_BODY:
                return Ascii({"error": "send JSON of at most 1 MB"}, 422)
            try:
                sent = Sent.model_validate_json(body)
                if (known := request.scope.get("rater")) is not None:
                    sent = sent.model_copy(update={"rater": known})
                return Ascii(await run_in_threadpool(answer, sent))
            except ValidationError as error:
                fault = error.errors()[0]
                where = ".".join(map(str, fault["loc"]))
                return Ascii({"error": f"{where}: {fault['msg']}"}, 422)
            except Taken as error:
                return Ascii({"error": str(error), "taken": True}, 409)
            except VrjaxError as error:
                return Ascii({"error": str(error)}, 422 if isinstance(error, InputError) else 500)

        return route

    def state(self, sent: Sent) -> dict[str, Any]:
        tasks = [
            {"task": task, "items": found["items"], "done": found["done"], "mine": found["by_rater"].get(sent.rater, 0)}
            for task, found in self.store.progress().items()
        ]
        return {"rater": sent.rater, "tasks": tasks, "dimensions": DIMENSIONS, "meanings": MEANINGS}

    def next(self, sent: Sent) -> dict[str, Any]:
        if sent.task not in TASKS:
            raise InputError("name a task.")
        item = self.store.next_item(sent.task, sent.rater)
        return {"item": None if item is None else self._shown(item, sent.rater), **self._places(sent, sent.task)}

    def save(self, sent: Sent) -> dict[str, Any]:
        item = self._item(sent)
        return {"saved": self.store.save(item.id, sent.rater, check_answer(item, sent.answer))}

    def later(self, sent: Sent) -> dict[str, Any]:
        self.store.put_aside(self._item(sent).id, sent.rater)
        return {}

    def open(self, sent: Sent) -> dict[str, Any]:
        item = self._item(sent)
        if self.store.answer(item.id, sent.rater) is None:
            raise InputError(f"{item.name}: you have not answered it. Ask for the next item.")
        return {"item": self._shown(item, sent.rater), **self._places(sent, item.task)}

    def renew(self, sent: Sent) -> dict[str, Any]:
        self.store.renew(self._item(sent).id, sent.rater)
        return {}

    def video(self, item: int) -> Any:
        if not 0 < item < LARGEST_ITEM:
            return Ascii({"error": f"there is no item {item}"}, 404)
        try:
            path = find_video(self.videos, self.store.item(item).payload["video"])
        except InputError as error:
            return Ascii({"error": str(error)}, 404)
        return Ascii({"error": "there is no video"}, 404) if path is None else FileResponse(path)

    def _item(self, sent: Sent) -> Item:
        if sent.item is None:
            raise InputError("name an item.")
        return self.store.item(sent.item)

    def _places(self, sent: Sent, task: Task) -> dict[str, Any]:
        """state, and the items of the task that the rater may go back to, the latest first."""
        return {"state": self.state(sent), "answered": self.store.answered(task, sent.rater)[:200]}

    def _shown(self, item: Item, rater: str) -> dict[str, Any]:
        """What a rater sees of an item: never who else rated it, and their ratings only as a meta-reviewer."""
        own = self.store.answer(item.id, rater)
        shown: dict[str, Any] = {
            "id": item.id, "task": item.task, "name": item.name, "payload": item.payload,
            "answer": None if own is None else own.body,
        }  # fmt: skip
        video = find_video(self.videos, item.payload["video"])
        if video is not None:
            shown["video"] = f"review/video/{item.id}"
        else:
            folder = "no folder was given" if self.videos is None else f"it is not in {self.videos.name}"
            shown["video_problem"] = f"No video: {folder}. You can judge by the text, or put the item aside."
        if item.task == "meta":
            rated = next(one for one in self.store.answers("verify") if one[0].name == item.name)[1]
            shown["ratings"] = [{"ratings": one.body["ratings"], "comment": one.body["comment"]} for one in rated]
        return shown
