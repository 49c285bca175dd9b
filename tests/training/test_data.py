import dataclasses
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vrjax.errors import InputError, RunError, VideoError
from vrjax.generation.prompts import ChatTokenizer
from vrjax.records import TimedText, load_records
from vrjax.run_directory import RunDirectory
from vrjax.training.buckets import fit_buckets
from vrjax.training.config import DatasetConfig, InputConfig
from vrjax.training.data import BatchIterator, Corpus
from vrjax.training.patch_cache import PatchCache
from vrjax.training.schedule import Schedule
from vrjax.training.sources import open_corpus
from vrjax.training.survey import NOTHING, Damage, RowText, survey_records
from vrjax.video import ReaderPool, load_patches, plan_frames

from .shapes_run import FRAMES, TEMPLATE, make_world, tiny_model


def row_text(world: Path, max_length: int = 1024) -> RowText:
    chat = ChatTokenizer.load(world / "tokenizer")
    return RowText(chat, tiny_model(world / "tokenizer"), TEMPLATE, max_length)


def records_of(world: Path):
    folder = world / "clips"
    return [
        record.model_copy(update={"video_path": str(folder / record.video_path)})
        for record in load_records(folder / "train.json")
    ]


def corpus_of(records, text: RowText, cache: PatchCache | None = None, load=None) -> Corpus:
    survey = survey_records(records, lambda r: plan_frames(r.video_path, FRAMES, isolated=False), text, 4)
    load = load or (lambda plan: load_patches(plan, isolated=False))
    return Corpus(tuple(records), survey, (len(survey.rows),), text, load, cache)


def schedule_of(corpus: Corpus, batch: int = 8, programs: int = 4, padding: float = 0.2) -> Schedule:
    buckets = fit_buckets([size for size in corpus.sizes if size != NOTHING], programs, padding)
    return Schedule(corpus.sizes, corpus.counts, [1.0], buckets, batch, seed=5)


@pytest.fixture(scope="module")
def corpus(world: Path) -> Corpus:
    return corpus_of(records_of(world), row_text(world), PatchCache(world / "patches"))


def content(batch) -> list[bytes]:
    return [array.tobytes() for array in (*vars(batch.rows.text).values(), batch.rows.vision.patches)]


def token_rows(batches) -> list[bytes]:
    """The rows of several processes' shares of one batch, in no order."""
    return sorted(row.tobytes() for batch in batches for row in batch.rows.text.tokens)


def test_resumed_iterator_gives_the_same_batches_across_epochs(corpus: Corpus) -> None:
    schedule = schedule_of(corpus)
    count = schedule.batches_in(3)
    whole = list(BatchIterator(corpus, schedule, count))
    assert [batch.number for batch in whole] == list(range(count))
    for stop in (2, schedule.batches_in(1) - 1, schedule.batches_in(2) + 1):
        again = BatchIterator(corpus, schedule_of(corpus), count, state=whole[stop].state)
        for batch, expected in zip(again, whole[stop + 1 :], strict=True):
            assert batch.names == expected.names
            assert content(batch) == content(expected)


def test_two_processes_see_each_record_once_an_epoch(corpus: Corpus) -> None:
    schedule = schedule_of(corpus)
    count = schedule.batches_in(1)
    one = list(BatchIterator(corpus, schedule, count))
    two = [list(BatchIterator(corpus, schedule, count, process=index, processes=2)) for index in range(2)]
    seen: list[str] = []
    for number, whole in enumerate(one):
        parts = [part[number] for part in two]
        assert all(len(part.rows.text.tokens) == 4 for part in parts)
        assert token_rows(parts) == token_rows([whole])
        assert {part[number].names for part in two} == {whole.names}
        seen += whole.names
    assert sorted(seen) == sorted(record.video_id for record in corpus.records)


def test_process_count_may_change_on_resume(corpus: Corpus) -> None:
    """4 -> 2 -> 4 processes; the state of any one serves all (maxtext#1760)."""
    schedule = schedule_of(corpus)
    count = schedule.batches_in(2)
    expected = [token_rows([batch]) for batch in BatchIterator(corpus, schedule, count)]
    found, state = [], None
    for processes, steps in ((4, 2), (2, 2), (4, count - 4)):
        parts = [
            BatchIterator(corpus, schedule, count, process=i, processes=processes, state=state)
            for i in range(processes)
        ]
        for _ in range(steps):
            batches = [next(part) for part in parts]
            found.append(token_rows(batches))
            state = batches[-1].state
    assert found == expected


def test_batch_that_processes_do_not_divide(corpus: Corpus) -> None:
    with pytest.raises(InputError, match="not divisible by 3 processes"):
        BatchIterator(corpus, schedule_of(corpus), 4, process=0, processes=3)


def test_padding_on_mixed_clip_lengths(tmp_path: Path) -> None:
    world = make_world(tmp_path, train=64, val=1, max_seconds=40)
    corpus = corpus_of(records_of(world), row_text(world))
    schedule = schedule_of(corpus, batch=4)
    epochs = 3
    batches = list(BatchIterator(corpus, schedule, schedule.batches_in(epochs)))
    share = np.average([batch.padding for batch in batches], weights=[batch.bucket.tokens for batch in batches])
    print(f"{len(schedule.buckets)} buckets, {share:.1%} of the tokens computed are padding")
    assert len(schedule.buckets) <= 4
    assert share <= 0.2
    assert len({batch.rows.text.tokens.shape for batch in batches}) == len(schedule.buckets)


def test_patches_are_decoded_once(world: Path, tmp_path: Path) -> None:
    decoded: list[str] = []

    def load(plan):
        decoded.append(plan.hash)
        return load_patches(plan, isolated=False)

    records = records_of(world)[:6]
    for _ in range(2):
        corpus = corpus_of(records, row_text(world), PatchCache(tmp_path), load)
        schedule = schedule_of(corpus, batch=3)
        batches = list(BatchIterator(corpus, schedule, schedule.batches_in(2), threads=1))
    assert sorted(decoded) == sorted({plan.hash for plan in corpus.survey.plans if plan})
    fresh = list(BatchIterator(replace(corpus, cache=None), schedule, schedule.batches_in(1)))
    assert [content(batch) for batch in fresh] == [content(batch) for batch in batches[: len(fresh)]]


def test_half_a_cache_file_is_decoded_again(tmp_path: Path) -> None:
    cache, patches = PatchCache(tmp_path), np.arange(40, dtype=np.uint8).reshape(4, 10)
    cache.write("ab12", patches)
    np.testing.assert_array_equal(cache.read("ab12", 4), patches)
    assert cache.read("ab12", 5) is None
    assert cache.read("cd34", 4) is None
    file = tmp_path / "ab" / "ab12.npy"
    file.write_bytes(file.read_bytes()[:-7])
    assert cache.read("ab12", 4) is None


def damaged_records(world: Path):
    records = records_of(world)[:8]

    def with_question(record, number, **changes):
        questions = list(record.questions)
        questions[number] = questions[number].model_copy(update=changes)
        return record.model_copy(update={"questions": tuple(questions)})

    records[1] = records[1].model_copy(update={"video_path": str(world / "nowhere.mp4")})
    records[2] = with_question(records[2], 0, question="  ")
    records[3] = with_question(records[3], 1, question="What is <|video_pad|> here?")
    records[4] = with_question(records[4], 2, evidence=(TimedText(timestamp=(5, 2), description="x"),))
    records[5] = with_question(records[5], 3, question="Which shape slides? " * 400)
    return records


def test_damaged_records_are_named_and_counted_and_keep_their_places(world: Path) -> None:
    text = row_text(world)
    good, records = records_of(world)[:8], damaged_records(world)
    survey = corpus_of(records, text).survey
    assert survey.damage_counts() == {
        Damage.UNREADABLE_VIDEO: 4,
        Damage.EMPTY_QUESTION: 1,
        Damage.CONTROL_TOKENS: 1,
        Damage.BAD_RESPONSE: 1,
        Damage.PROMPT_TOO_LONG: 1,
    }
    assert survey.damaged_share == 8 / 32
    names = {item.name for item in survey.damaged}
    assert f"{records[2].video_id}/{records[2].questions[0].question_id}" in names
    assert all(item.message for item in survey.damaged)
    assert len(survey.rows) == len(good)

    corpus = corpus_of(records, text)
    schedule = schedule_of(corpus, batch=4)
    batches = list(BatchIterator(corpus, schedule, schedule.batches_in(1)))
    assert sorted(name for batch in batches for name in batch.names) == sorted(record.video_id for record in records)
    weights = sum(float(batch.rows.text.weights.sum()) for batch in batches)
    usable = [row for row in corpus.survey.rows if row.questions]
    assert weights == sum(row.size.targets for row in usable)


def test_video_that_fails_later_weighs_nothing(world: Path) -> None:
    records = records_of(world)[:4]
    bad = records[2].video_path

    def load(plan):
        if plan.path == bad:
            raise VideoError(f"{plan.path}: is cut short.", "truncated")
        return load_patches(plan, isolated=False)

    corpus = corpus_of(records, row_text(world), load=load)
    batch = next(BatchIterator(corpus, schedule_of(corpus, batch=4), 1))
    assert batch.damaged == ((records[2].video_id, f"{bad}: is cut short. (truncated)"),)
    place = batch.names.index(records[2].video_id)
    assert batch.rows.text.weights[place].sum() == 0
    assert batch.rows.text.segment[place].sum() == 0
    assert all(batch.rows.text.weights[other].sum() > 0 for other in range(4) if other != place)


def test_survey_is_kept_and_survives_a_file_that_vanishes(world: Path, tmp_path: Path) -> None:
    clips = world / "clips"
    dataset = DatasetConfig(clips / "train.json", limit=4)
    run, text = RunDirectory(tmp_path / "run"), row_text(world)

    def opened(questions: int = 4, said: list[str] | None = None, share: float = 0.02) -> Corpus:
        say = (said if said is not None else []).append
        options = InputConfig(threads=1, max_damaged_share=share)
        with ReaderPool(1) as pool:
            return open_corpus([dataset], text, FRAMES, options, questions, run, "survey", pool, say)

    first = opened()
    assert first.survey == opened().survey
    video = Path(first.records[0].video_path)
    moved = video.rename(video.with_suffix(".away"))
    try:
        assert opened().survey == first.survey
        with pytest.raises(InputError, match="have changed since the run started"):
            opened(questions=2)
        (run.path / "survey.json").unlink()
        said: list[str] = []
        with pytest.raises(RunError, match=r"4 of 16 questions .* 0\.02 .*" + first.records[0].video_id):
            opened(said=said)
        assert any("4 unreadable_video" in line for line in said)
        assert opened(share=0.5).survey.damaged_share == 0.25
    finally:
        moved.rename(video)


def test_patch_sizes_must_be_the_models(world: Path, tmp_path: Path) -> None:
    frames = dataclasses.replace(FRAMES, patch_size=16)
    dataset = DatasetConfig(world / "clips" / "train.json")
    with ReaderPool(1) as pool, pytest.raises(InputError, match="patch sizes"):
        open_corpus([dataset], row_text(world), frames, InputConfig(), 4, RunDirectory(tmp_path), "survey", pool, print)
