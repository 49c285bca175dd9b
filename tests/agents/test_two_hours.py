"""A video of two hours: an event of five seconds is found, each frame is decoded once, and memory stays flat."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import av
import numpy as np
import psutil
import pytest

from experiments.scripted_endpoint import scripted_endpoint
from experiments.shapes_script import colour_counts, number, seconds
from vrjax.agents import FrameStore, ToolContext, ToolSettings, Video, find_when, retrieval_qa
from vrjax.llm import ChatClient, parse_llm

LENGTH, EVENT, WINDOW = 7200, range(4321, 4326), 120


class Watcher:
    """Finds red pictures, and remembers which frames it was shown when it was asked to search."""

    def __init__(self):
        self.searched = Counter()
        self.sizes = Counter()

    def __call__(self, asked):
        red = [label for label, picture in asked.pictures if colour_counts(picture)["red"] > picture[..., 0].size / 2]
        if asked.form is not None:
            self.searched.update(number(label) for label, _ in asked.pictures)
            self.sizes[len(asked.pictures)] += 1
        if asked.form == "RelevantFrames":
            return {"frames": [number(label) for label in red]}
        if asked.form == "FoundRanges":
            times = [seconds(label) for label in red]
            return {"ranges": [{"start": min(times), "end": max(times) + 1, "why": "red"}] if times else []}
        return "red at " + ", ".join(f"{seconds(label):.0f}" for label in red)


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    path = tmp_path_factory.mktemp("film") / "two_hours.mp4"
    noise = np.random.default_rng(0).integers(60, 180, (7, 64, 64, 3), dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=1, options={"preset": "ultrafast", "g": "60"})
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for second in range(LENGTH):
            picture = noise[second % 7].copy()
            if second in EVENT:
                picture[:] = (230, 40, 40)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


class MostMemory:
    """The most that this process held while it was watched, above its start, in MB."""

    def __enter__(self):
        self._process, self._done = psutil.Process(), threading.Event()
        self._start = self.most = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self):
        while not self._done.wait(0.05):
            self.most = max(self.most, self._process.memory_info().rss)

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()
        self.mb = (self.most - self._start) / 2**20


@pytest.mark.slow
@pytest.mark.parametrize("tool", [retrieval_qa, find_when], ids=["retrieval_qa", "find_when"])
def test_an_event_is_found_in_two_hours(film, tool):
    watcher = Watcher()
    with scripted_endpoint(watcher) as endpoint:
        client = ChatClient(parse_llm("openai:scripted", endpoint.url), attempts=1)
        store = FrameStore(film)
        context = ToolContext(chat=client, store=store, question="", whole=store.whole, settings=ToolSettings())

        async def call():
            try:
                return await tool.call(context, {"query": "When is all red?", "video": store.whole})
            finally:
                await client.aclose()

        began = time.monotonic()
        with MostMemory() as memory:
            found = asyncio.run(call())
        print(f"{tool.name}: {time.monotonic() - began:.1f} s, {memory.mb:.0f} MB")
    if tool is find_when:
        assert [one[:2] for one in found] == [(float(EVENT.start), float(EVENT.stop))]
    else:
        assert found == "red at " + ", ".join(map(str, EVENT))
        assert context.noted.chosen == [float(second) for second in EVENT]
    assert watcher.searched == Counter({place: 1 for place in range(1, LENGTH + 1)})
    assert watcher.sizes == {WINDOW: LENGTH // WINDOW}
    assert store.decoded == LENGTH
    assert context.noted.frames == [float(second) for second in range(LENGTH)]
    assert memory.mb < 1024


@pytest.mark.slow
def test_a_small_cache_still_decodes_each_frame_once_a_call(film):
    watcher = Watcher()
    with scripted_endpoint(watcher) as endpoint:
        client = ChatClient(parse_llm("openai:scripted", endpoint.url), attempts=1)
        store = FrameStore(film, most_bytes=20_000)
        # Both ends belong to it; an even number of frames, so that the plan leaves none out.
        part = Video(float(EVENT.start - 300), float(EVENT.stop + 298))
        context = ToolContext(chat=client, store=store, question="", whole=store.whole, settings=ToolSettings())

        async def call():
            try:
                return await retrieval_qa.call(context, {"query": "When is all red?", "video": part})
            finally:
                await client.aclose()

        assert asyncio.run(call()) == "red at " + ", ".join(map(str, EVENT))
    assert store.decoded == len(context.noted.frames) == sum(watcher.searched.values())
    assert set(watcher.searched.values()) == {1}
