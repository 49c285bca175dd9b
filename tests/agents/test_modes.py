"""All modes through an HTTP endpoint that sees the requests alone, and the same runs again without it."""

from __future__ import annotations

import asyncio

import pytest

from experiments.scripted_endpoint import scripted_endpoint
from experiments.shapes_script import ShapesScript
from vrjax.agents import MODES, AgentSettings, Sampling, ToolSettings, VideoAgent, replay
from vrjax.agents.exchanges import ReplayError
from vrjax.agents.replay import difference
from vrjax.agents.trace_text import trace_text
from vrjax.errors import InputError
from vrjax.llm import ChatClient, parse_llm

SUBSET = "get_segment+retrieval_qa"


def make_agent(endpoint, mode, **options):
    client = ChatClient(parse_llm("openai:scripted", endpoint.url), attempts=2, concurrency=16)
    subset = SUBSET if mode.endswith("best_subset") else None
    settings = {"sampling": Sampling(fps=2.0), "tool_settings": ToolSettings(window=10), **options}
    return VideoAgent(client, mode=mode, subset=subset, **settings)


async def answer_all(agent, tasks):
    try:
        return await asyncio.gather(*(agent.answer(task) for task in tasks))
    finally:
        await agent.chat.aclose()


@pytest.fixture(scope="module")
def endpoint():
    with scripted_endpoint(ShapesScript()) as one:
        yield one


@pytest.fixture(scope="module", params=MODES)
def runs(request, endpoint, shapes_tasks, shared):
    with make_agent(endpoint, request.param, **shared) as agent:
        return request.param, asyncio.run(answer_all(agent, shapes_tasks))


def test_every_question_is_answered(runs, shapes_tasks):
    mode, found = runs
    assert [run.id for run in found] == [task.id for task in shapes_tasks]
    assert all(run.mode == mode and run.error is None for run in found), [run.error for run in found]
    assert {run.answer for run in found} <= {"red", "green", "blue", "yellow"}
    assert len({run.answer for run in found}) > 1


def test_traces_have_the_form_of_their_mode(runs):
    mode, found = runs
    for run in found:
        names = [trace.strategy for trace in run.traces]
        steps = [len(trace.steps) for trace in run.traces]
        if mode in ("direct", "direct_transcript"):
            assert (names, steps) == ([mode], [1])
            assert len(run.traces[0].calls[0].frames) == 10
        elif mode.startswith("single_program"):
            assert (names, steps) == ([SUBSET if "best" in mode else "all"], [1])
        elif mode == "critic":
            assert names == ["all", f"{SUBSET}+asr_understanding", "direct:retrieval_qa"]
            assert steps == [3, 2, 1]
        else:
            assert names == [SUBSET if "best" in mode else "all"]
        if mode == "self_evaluation":
            assert [step.confidence for step in run.traces[0].steps] == [1, 3]
            assert run.answer == run.traces[0].steps[-1].candidate
        assert (run.verdict is not None) == (mode == "critic")
        assert sum(run.tokens) > 0


def test_the_critics_answer_is_that_of_its_winner(runs, endpoint):
    mode, found = runs
    if mode != "critic":
        return
    for run in found:
        chosen = next(trace for trace in run.traces if trace.strategy == run.verdict.chosen)
        assert run.answer == chosen.answer
        # Answers of different attempts may be the same; their texts are not.
        texts = {trace.strategy: trace_text(trace, 12_000).strip() for trace in run.traces}
        assert texts[chosen.strategy] == endpoint.script.picked[frozenset(texts.values())]
        assert run.verdict.winners[0] == run.verdict.chosen
        assert run.verdict.fallback is None
        assert sorted(run.verdict.order) == sorted(trace.strategy for trace in run.traces)
    assert len({run.verdict.order for run in found}) > 1  # shuffled
    assert len({run.verdict.chosen for run in found}) > 1


def test_a_run_replays_without_a_model(runs, shared):
    for run in runs[1]:
        read = type(run).model_validate_json(run.model_dump_json())
        assert read == run
        assert difference(replay(read, workers=shared["workers"]), run) == ""


def test_a_changed_record_does_not_replay(runs):
    mode, found = runs
    run = found[0]
    if mode.startswith("direct"):
        changed = run.model_copy(update={"answer": "purple"})
    else:
        trace = run.traces[0]
        last = trace.replies[-1] if mode != "self_evaluation" else trace.replies[0]
        other = last.model_copy(
            update={"text": (last.text or "").replace("video", "(0, 1)").replace("finish('", "finish('dark ")}
        )
        replies = tuple(other if one is last else one for one in trace.replies)
        changed = run.model_copy(update={"traces": (trace.model_copy(update={"replies": replies}), *run.traces[1:])})
    with pytest.raises(ReplayError, match=run.id):
        replay(changed)


def test_modes_refuse_what_they_cannot_use(endpoint, shapes_tasks):
    task = shapes_tasks[0]
    silent = type(task)(task.id, task.question, task.video)
    with make_agent(endpoint, "direct_transcript") as agent, pytest.raises(InputError, match="needs a transcript"):
        asyncio.run(agent.answer(silent))
    with make_agent(endpoint, "critic", strategies=("all", "shout")) as agent, pytest.raises(InputError, match="shout"):
        asyncio.run(agent.answer(task))
    with make_agent(endpoint, "agent", strategies=("all",)) as agent, pytest.raises(InputError, match="mode critic"):
        asyncio.run(agent.answer(task))
    with pytest.raises(InputError, match="0 steps"):
        AgentSettings(steps=0)
