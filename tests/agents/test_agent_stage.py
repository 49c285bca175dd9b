"""The demo's agent stage on a clip of shapes: real programs and tools, and it says what is not a model."""

from __future__ import annotations

from experiments.agent_stage import STAND_IN, run_agent_stage
from vrjax.agents import read_traces


def test_the_demos_agent_answers_and_goes_on(tmp_path, shapes_tasks):
    task = shapes_tasks[0]
    stage = run_agent_stage(task.id, task.question, "green", task.video, tmp_path)
    assert stage.summary["answer"] in {"red", "green", "blue", "yellow"}
    assert stage.summary["outcomes"].keys() == {"all", "get_segment+retrieval_qa", "direct:retrieval_qa"}
    assert stage.summary["frames_looked_at"] > 10
    assert stage.seconds < 20
    assert STAND_IN in stage.table().text[0]
    assert any("retrieval_qa" in row[1] for row in stage.table().rows)
    before = (tmp_path / "traces.jsonl").read_bytes()
    again = run_agent_stage(task.id, task.question, "green", task.video, tmp_path)
    assert again.run == read_traces(tmp_path)[task.id]
    assert (tmp_path / "traces.jsonl").read_bytes() == before
