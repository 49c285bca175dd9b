"""The context questions, the six-role discussion and the export, through a scripted server that sees what is sent."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from data_tools.cli import main
from data_tools.moviecore.clips import join_clips, read_clips
from data_tools.moviecore.context import CONTEXT_QUESTIONS
from data_tools.moviecore.export import counts, official_files
from data_tools.moviecore.workflow import Workflow, load_workflow
from data_tools.shapes.encode import encode_mp4
from tests.llm.scripted_server import FAULTS, scripted_server
from vrjax.errors import InputError

FIXTURES = Path(__file__).parent.parent / "fixtures"
REALDATA = os.environ.get("VRJAX_REALDATA")
CAPTION = "A caption that nobody may see."
PROMPTS = {name: role.prompt for name, role in Workflow().roles.items()}


def hermes(names: list[str], split: str) -> dict:
    """Clips in HERMES' form, with captions."""
    return {
        f"{name}_{n}": {
            "question": f"Plain question {n} of {name}?", "answer": f"Plain answer {n}.", "question_id": f"{name}_{n}",
            "dataset": f"moviechat_1k_{split}", "video": name, "frame_length": 100, "original_fps": 25, "fps": 10,
            "height": 64, "width": 64, "class": "Made-up Film", "caption": CAPTION,
        }
        for name in names
        for n in (1, 2)
    }  # fmt: skip


CLIPS = [f"clip-{letter}" for letter in "abcdefghij"]
# The writer refines the pairs of these; of the others it keeps them.
CHANGED = set(CLIPS[:6])


def role_of(sent: dict) -> str:
    return next(name for name, prompt in PROMPTS.items() if sent["messages"][0]["content"].startswith(prompt))


def clip_of(sent: dict) -> str:
    return re.search(r"clip-[a-j]", sent["messages"][1]["content"])[0]  # pyright: ignore


def pairs(clip: str, version: str) -> list[dict]:
    return [
        {"question": f"Why, {n}, in {clip} ({version})?", "answer": f"Because of {n}.", "classification": "causal"}
        for n in range(5)
    ]


def script(sent: dict) -> str:
    first = sent["messages"][0]["content"]
    if not isinstance(first, str):  # frames, and then one of the eight questions
        question = first[-1]["text"]
        name = next(name for name, text in CONTEXT_QUESTIONS.items() if text == question)
        return f"About {name}."
    role, clip = role_of(sent), clip_of(sent)
    if role == "writer":
        refines = "Refine" in sent["messages"][1]["content"]
        if refines and clip == "clip-b" and len(sent["messages"]) == 2:  # breaks the form once: six pairs
            return json.dumps({"pairs": pairs(clip, "refined")[:1] * 6})
        version = "refined" if refines and clip in CHANGED else "draft"
        text = json.dumps({"pairs": pairs(clip, version)})
        return f"Here you are:\n```json\n{text}\n```" if clip == "clip-a" else text
    return json.dumps({"text": f"words of the {role} on {clip}"})


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Ten clips of two frames, described in HERMES' form."""
    folder = tmp_path_factory.mktemp("moviecore")
    (folder / "videos").mkdir()
    for number, name in enumerate(CLIPS):
        frames = np.full((4, 64, 64, 3), 20 * number + 30, np.uint8)
        encode_mp4(frames, folder / "videos" / f"{name}.mp4", 2)
    (folder / "train.json").write_text(json.dumps(hermes(CLIPS[:7], "train")))
    (folder / "test.json").write_text(json.dumps(hermes(CLIPS[7:], "test")))
    return folder


def run(capsys, stage: str, work: Path, *words) -> tuple[int, dict, str]:
    code = main(["moviecore", stage, "--work", str(work), "--json", *map(str, words)])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out.startswith("{") else {}, printed.err


def described(world: Path) -> list[str]:
    return ["--clips.train", str(world / "train.json"), "--clips.test", str(world / "test.json")]


def models(url: str) -> list[str]:
    return ["--strong.llm", "openai:strong", "--strong.base-url", url, "--small.llm", "openai:small",
            "--small.base-url", url]  # fmt: skip


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def annotated(world, tmp_path_factory):
    """Contexts and annotations of all clips, a tenth of the calls faulty; (folder, server)."""
    work = tmp_path_factory.mktemp("work")
    with scripted_server(script, fault_share=0.1) as server:
        server.kinds = FAULTS[:3]  # any text is an answer to an open question
        watching = ["--llm", "openai:watcher", "--base-url", server.url, "--frames.frames", "2", "--attempts", "12"]
        context = ["context", "--work", work, *described(world), "--videos", world / "videos", *watching]
        assert main(["moviecore", *map(str, context)]) == 0
        server.kinds = FAULTS
        annotate = ["annotate", "--work", work, *described(world), *models(server.url), "--attempts", "12"]
        assert main(["moviecore", *map(str, annotate)]) == 0
        yield work, server


def sent_to(server, role: str, clip: str) -> list[dict]:
    """The role's conversations about a clip, each once (a reply of no use has further messages behind it)."""
    found = [one for one in server.bodies if one["model"] in ("strong", "small")]
    found = [one for one in found if role_of(one) == role and clip_of(one) == clip]
    return list({one["messages"][1]["content"]: one for one in found}.values())


def test_each_clip_is_asked_the_eight_questions_with_its_frames(annotated):
    work, server = annotated
    context = rows(work / "context.jsonl")
    assert [one["clip"] for one in context] == CLIPS
    assert all(one["answers"] == {name: f"About {name}." for name in CONTEXT_QUESTIONS} for one in context)
    asked = [one for one in server.bodies if one["model"] == "watcher"]
    images = [[part for part in one["messages"][0]["content"] if part["type"] == "image_url"] for one in asked]
    assert {len(one) for one in images} == {2}
    assert len({one[0]["image_url"]["url"] for one in images}) == 10


def test_the_order_of_messages_is_the_papers(annotated):
    wanted = ["critic", "writer", "skeptical_researcher", "detective", "meta_reviewer", "critic", "writer",
              "caption_writer"]  # fmt: skip
    for row in rows(annotated[0] / "annotations.jsonl"):
        transcript = row["transcript"]
        assert [message["role"] for message in transcript] == wanted
        assert [message["number"] for message in transcript] == list(range(1, 9))
        strong = [m["role"] for m in transcript if m["model"] and m["model"].startswith("openai:strong")]
        assert strong == ["writer", "meta_reviewer", "writer"]
        assert transcript[0]["model"] is None
        assert all(message["reply"] for message in transcript[1:])


@pytest.mark.parametrize(
    ("role", "place", "sees"),
    [
        ("writer", 0, ["data_info"]),
        ("skeptical_researcher", 0, ["data_info", "pairs"]),
        ("detective", 0, ["data_info", "pairs"]),
        ("meta_reviewer", 0, ["data_info", "pairs", "skeptical_researcher", "detective"]),
        ("critic", 0, ["pairs", "skeptical_researcher", "detective", "meta_reviewer"]),
        ("writer", 1, ["data_info", "pairs", "critic"]),
        ("caption_writer", 0, ["data_info"]),
    ],
)
def test_each_role_sees_only_what_it_should(annotated, role, place, sees):
    text = sent_to(annotated[1], role, "clip-c")[place]["messages"][1]["content"]
    seen = json.loads(text[text.index("{") :])
    assert list(seen) == sees
    for name in sees:
        if name == "pairs":
            assert seen[name] == pairs("clip-c", "draft")
        elif name != "data_info":
            assert seen[name] == f"words of the {name} on clip-c"


def test_the_writer_gets_the_data_info_and_nobody_a_caption(annotated):
    text = sent_to(annotated[1], "writer", "clip-h")[0]["messages"][1]["content"]
    info = json.loads(text[text.index("{") :])["data_info"]
    assert info["video_context"] == {name: f"About {name}." for name in CONTEXT_QUESTIONS}
    assert info["metadata"]["class"] == "Made-up Film"
    assert info["system1_questions"] == [
        {"question": f"Plain question {n} of clip-h?", "answer": f"Plain answer {n}."} for n in (1, 2)
    ]
    assert CAPTION not in json.dumps(annotated[1].bodies)
    assert CAPTION not in (annotated[0] / "annotations.jsonl").read_text()


def test_single_pass_and_refined_stand_side_by_side_and_replies_are_repaired(annotated, capsys):
    work = annotated[0]
    code, figures, _ = run(capsys, "export", work)
    assert (code, figures) == (0, {
        "train": {"videos": 7, "questions": 35}, "test": {"videos": 3, "questions": 15}, "captions": 10,
        "refined_differs": 6,
    })  # fmt: skip
    train, single = (json.loads((work / name).read_text()) for name in ("train.json", "single_pass_train.json"))
    assert single["clip-a.mp4"] == pairs("clip-a", "draft")
    assert train["clip-a.mp4"] == pairs("clip-a", "refined")
    assert train["clip-g.mp4"] == single["clip-g.mp4"]
    assert json.loads((work / "captions.json").read_text())["clip-b.mp4"] == "words of the caption_writer on clip-b"
    by_clip = {row["clip"]: row["transcript"] for row in rows(work / "annotations.jsonl")}
    assert "text_around" in by_clip["clip-a"][1]["repairs"]
    assert "asked_again" in by_clip["clip-b"][6]["repairs"]


def test_again_costs_no_call_and_a_lost_journal_neither(annotated, world, capsys):
    work, server = annotated
    kept, calls = (work / "annotations.jsonl").read_text(), server.calls
    words = [*described(world), *models(server.url)]
    code, figures, err = run(capsys, "annotate", work, *words)
    assert (code, figures["pairs"], "0 requests" in err) == (0, 50, True)
    (work / "annotations.journal.jsonl").unlink()
    assert run(capsys, "annotate", work, *words)[0] == 0
    assert server.calls == calls
    assert (work / "annotations.jsonl").read_text() == kept
    assert max(server.asked.values()) == 1


def test_roles_rounds_and_prompts_are_a_file_that_people_edit(annotated, world, capsys, tmp_path):
    file = tmp_path / "workflow.json"
    assert run(capsys, "annotate", tmp_path, "--write-workflow", file)[0] == 0
    edited = json.loads(file.read_text())
    assert load_workflow(file) == Workflow()
    edited["rounds"] = 2
    edited["roles"]["detective"]["model"] = "strong"
    edited["roles"]["poet"] = {"model": "small", "prompt": PROMPTS["critic"] + " In verse."}
    edited["round"][1]["role"] = "poet"
    edited["round"][2]["sees"] = ["pairs", "poet"]
    edited["round"][3]["sees"] = ["pairs", "poet", "meta_reviewer"]
    file.write_text(json.dumps(edited))
    (tmp_path / "context.jsonl").write_text((annotated[0] / "context.jsonl").read_text())
    words = [*described(world), *models(annotated[1].url), "--workflow", file, "--clips.limit", 1, "--attempts", 12]
    assert run(capsys, "annotate", tmp_path, *words)[0] == 0
    transcript = rows(tmp_path / "annotations.jsonl")[0]["transcript"]
    turn = ["skeptical_researcher", "poet", "meta_reviewer", "critic", "writer"]
    assert [m["role"] for m in transcript] == ["critic", "writer", *turn, *turn, "caption_writer"]
    assert [m["round"] for m in transcript] == [0, 0, *[1] * 5, *[2] * 5, 3]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w["round"][0].update(role="nobody"), "'nobody' is not among the roles"),
        (lambda w: w["round"][0].update(sees=["meta_reviewer"]), "before anybody has said it"),
        (lambda w: w["opening"].pop(), "before anybody has said it"),
        (lambda w: w.update(rounds=-1), "rounds"),
        (lambda w: w["roles"]["critic"].update(model="huge"), "roles.critic.model"),
        (lambda w: w.update(turns=3), "turns"),
    ],
)
def test_a_workflow_that_does_not_hold_together_is_refused(tmp_path, change, said):
    content = json.loads(Workflow().model_dump_json())
    change(content)
    (tmp_path / "w.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=re.escape(said)):
        load_workflow(tmp_path / "w.json")


def test_a_role_that_never_fits_fails_its_clip_alone(annotated, world, capsys, tmp_path):
    (tmp_path / "context.jsonl").write_text((annotated[0] / "context.jsonl").read_text())

    def stubborn(sent: dict) -> str:
        return "{}" if role_of(sent) == "detective" and clip_of(sent) == "clip-d" else script(sent)

    with scripted_server(stubborn) as server:
        words = [*described(world), *models(server.url), "--attempts", 1]
        code, figures, _ = run(capsys, "annotate", tmp_path, *words)
        assert (code, figures["annotated"], figures["failed"]) == (0, 9, {"bad_reply": 1})
        assert run(capsys, "annotate", tmp_path, *words, "--max-failed-share", 0.05)[0] == 1
        # The clip's replies that were usable are not asked for again.
        assert max(count for body, count in server.asked.items() if "detective" not in body) == 1


def test_a_missing_video_is_named_and_its_clip_waits(world, capsys, tmp_path):
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "clip-h.mp4").write_bytes((world / "videos" / "clip-h.mp4").read_bytes())
    with scripted_server(script) as server:
        words = ["--clips.test", world / "test.json", "--videos", tmp_path / "videos", "--frames.frames", 2,
                 "--llm", "openai:watcher", "--base-url", server.url]  # fmt: skip
        code, figures, _ = run(capsys, "context", tmp_path, *words)
        assert (code, figures["complete"], figures["missing"]) == (0, 1, ["clip-i", "clip-j"])
        code, figures, _ = run(capsys, "annotate", tmp_path, "--clips.test", world / "test.json", *models(server.url))
        assert (code, figures["annotated"], figures["without_context"]) == (0, 1, 2)


def test_both_forms_of_moviechat_and_the_split_by_a_list(tmp_path):
    clips = read_clips(FIXTURES / "hermes_moviechat_annotation.json", "test")
    assert [(one.name, len(one.system1)) for one in clips] == [("clip-a", 2)]
    assert "caption" not in clips[0].metadata
    one = read_clips(FIXTURES / "moviechat_1k_clip-a.json", "train")[0]
    assert (one.name, len(one.system1), one.metadata["num_frame"]) == ("clip-a", 3, 12000)
    with pytest.raises(InputError, match="'clip-a' is in two files"):
        join_clips([clips, [one]])
    names = tmp_path / "test.txt"
    names.write_text("clip-a.mp4\n")
    assert join_clips([[one]], names)[0].split == "test"
    names.write_text("clip-z\n")
    with pytest.raises(InputError, match="'clip-z' is no clip"):
        join_clips([[one]], names)


@pytest.mark.skipif(not REALDATA, reason="VRJAX_REALDATA names no folder")
def test_moviechats_lists_give_the_published_split():
    folder = Path(REALDATA or "") / "moviechat"
    clips = join_clips([read_clips(folder / f"{split}.json", split) for split in ("train", "test")])
    files = official_files(
        {"clip": one.name, "split": one.split, "refined": pairs(one.name, "x"), "single_pass": [], "caption": "c"}
        for one in clips
    )
    found = counts(files)
    assert found["train"] == {"videos": 816, "questions": 4080}
    assert found["test"] == {"videos": 170, "questions": 850}
