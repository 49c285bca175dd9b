"""Clips and tasks that the agent's tests share."""

from __future__ import annotations

import pytest

from data_tools.shapes.dataset import ClipOptions, DatasetOptions, make_dataset
from vrjax.agents import Task, Workers
from vrjax.records import load_records
from vrjax.video import ReaderPool
from vrjax.video.transcript import Utterance


@pytest.fixture(scope="session")
def shapes_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    make_dataset(folder, DatasetOptions(train=0, val=0, test=5, seed=3, clip=ClipOptions(size=112)))
    return folder


@pytest.fixture(scope="session")
def shared():
    """Processes that all agents of the tests may use."""
    with Workers(2) as workers, ReaderPool(2) as pool:
        yield {"workers": workers, "pool": pool}


@pytest.fixture(scope="session")
def shapes_tasks(shapes_folder):
    """20 questions about 5 clips, each clip with a transcript."""
    spoken = (Utterance(1.0, 2.0, "Watch the colours."), Utterance(5.0, 6.0, "Something moves."))
    return [
        Task(question.question_id, question.question, shapes_folder / record.video_path, transcript=spoken)
        for record in load_records(shapes_folder / "test.json")
        for question in record.questions
    ]
