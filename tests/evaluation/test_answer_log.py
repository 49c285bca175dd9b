"""The log of answers: what a kill leaves, what several processes leave, what is asked again."""

import json
import subprocess
import sys

import pytest

from vrjax.errors import InputError
from vrjax.evaluation.answer_log import Answer, AnswerLog, read_answers
from vrjax.evaluation.benchmark import Item
from vrjax.evaluation.shards import Shard

GOOD = Answer(id="a", text="half \ud83d smile\u2028", finished=False, notes=("frames_reduced",))


def test_what_is_written_is_read_again(tmp_path):
    with AnswerLog(tmp_path) as log:
        log.append(GOOD)
        log.append(Answer(id="b", error="cut.mp4 is short", kind="video"))
    assert read_answers(tmp_path) == {"a": GOOD, "b": Answer(id="b", error="cut.mp4 is short", kind="video")}


@pytest.mark.parametrize("kept", range(1, 40, 3))
def test_a_last_line_that_was_cut_short_is_asked_again(tmp_path, kept):
    with AnswerLog(tmp_path) as log:
        log.append(GOOD)
    whole = (tmp_path / "answers.jsonl").read_bytes()
    with (tmp_path / "answers.jsonl").open("ab") as file:
        file.write(json.dumps(Answer(id="b", text="x" * 40).as_row()).encode()[:kept])
    assert read_answers(tmp_path) == {"a": GOOD}
    with AnswerLog(tmp_path) as log:
        assert (tmp_path / "answers.jsonl").read_bytes() == whole
        log.append(Answer(id="b", text="again"))
    assert read_answers(tmp_path)["b"].text == "again"
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 2


def test_a_last_line_that_lost_only_its_end_counts(tmp_path):
    with AnswerLog(tmp_path) as log:
        log.append(GOOD)
    path = tmp_path / "answers.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    with AnswerLog(tmp_path) as log:
        log.append(Answer(id="b", text="next"))
    assert list(read_answers(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"id": 3, "text": "x"}', '{"id": "x"}', '{"id": "x", "text": "y", "z": 1}']
)
def test_damage_in_the_middle_is_named(tmp_path, line):
    with AnswerLog(tmp_path) as log:
        log.append(GOOD)
    path = tmp_path / "answers.jsonl"
    path.write_text(line + "\n" + path.read_text())
    with pytest.raises(InputError, match=r"answers\.jsonl: line 1 is no answer"):
        read_answers(tmp_path)


def test_only_what_may_pass_is_asked_again(tmp_path):
    assert GOOD.final
    assert Answer(id="a", error="e", kind="video").final
    assert Answer(id="a", error="e", kind="refused").final
    assert not Answer(id="a", error="e", kind="timeout").final
    with AnswerLog(tmp_path) as log:
        log.append(Answer(id="a", error="no reply", kind="timeout"))
        log.append(Answer(id="a", text="at last"))
        log.append(Answer(id="b", text="first"))
        log.append(Answer(id="b", text="second"))
    found = read_answers(tmp_path)
    assert (found["a"].text, found["b"].text) == ("at last", "first")


def test_two_processes_do_not_write_one_log(tmp_path):
    script = (
        "import sys; from pathlib import Path; from vrjax.evaluation.answer_log import AnswerLog\n"
        "with AnswerLog(Path(sys.argv[1])): print('open', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == "open\n"
    with pytest.raises(InputError, match="another process writes"), AnswerLog(tmp_path):
        pass
    with AnswerLog(tmp_path, Shard(1, 2)):  # a shard has its own
        pass
    other.stdin.close()
    assert other.wait() == 0
    with AnswerLog(tmp_path):
        pass


def test_shards_part_the_videos():
    items = [Item(id=str(n), video=f"v{n // 3}", question="?") for n in range(40)]
    parts = [Shard(i, 4).take(items) for i in (1, 2, 3, 4)]
    assert sorted(item.id for part in parts for item in part) == sorted(item.id for item in items)
    videos = [{item.video for item in part} for part in parts]
    assert sum(map(len, videos)) == len(set().union(*videos)) == 14
    assert {len(one) for one in videos} == {3, 4}
    assert Shard.parse("3/8") == Shard(3, 8)
    for text in ("0/4", "5/4", "1", "a/b", "1/0", "-1/4"):
        with pytest.raises(InputError, match="shard"):
            Shard.parse(text)


def test_without_jax_there_is_one_process():
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from vrjax.evaluation.shards import Shard; "
         "print(Shard.of_process(), 'jax' in sys.modules)"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == "None False"
