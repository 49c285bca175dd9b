"""The command line: exit codes, and sentences instead of tracebacks, for input that cannot be used."""

import json
import os
from pathlib import Path

import jax
import pytest
from flax import nnx

from data_tools.shapes.dataset import DatasetOptions, make_dataset
from experiments.shapes_sft import FRAMES, make_tokenizer, model_config
from vrjax.cli import main
from vrjax.generation.prompts import ChatTokenizer
from vrjax.generation.recipe import PromptRecipe
from vrjax.loading import LoadedModel, abstract_model, save
from vrjax.models.qwen2_5_vl import Qwen2_5VL


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with clips and a small random model."""
    folder = tmp_path_factory.mktemp("world")
    make_dataset(folder, DatasetOptions(train=3, val=1, test=1))
    tokenizer, vocabulary = make_tokenizer(folder)
    config = model_config(vocabulary)
    graph, _ = abstract_model(config)
    params = jax.jit(lambda: nnx.split(Qwen2_5VL(config, nnx.Rngs(0)))[1])()
    save(LoadedModel(config, graph, params, ChatTokenizer.load(tokenizer)), folder / "model")
    PromptRecipe(FRAMES, instruction="").write(folder / "model")
    return folder


@pytest.fixture
def clip(world):
    return str(next((world / "videos").glob("*test*.mp4")))


def run(capsys, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr()
    return ended.value.code or 0, printed.out, printed.err


def test_an_answer_as_json_names_what_was_shown(capsys, world, clip):
    code, out, _ = run(capsys, "answer", clip, "Which shape slides?", "--model", str(world / "model"), "--json",
                       "--samples", "2", "--temperature", "1", "--max-tokens", "8")  # fmt: skip
    result = json.loads(out)
    assert code == 0
    assert len(result["responses"]) == 2
    assert result["frames"][:3] == [0.0, 0.5, 1.0]
    assert {"answer", "evidence", "reasoning", "well_formed", "faults", "text", "finished"} <= set(
        result["responses"][0]
    )


def test_samples_of_one_seed_come_again(capsys, world, clip):
    words = ("answer", clip, "Which shape slides?", "--model", str(world / "model"), "--json", "--samples", "2",
             "--temperature", "1", "--max-tokens", "8", "--seed")  # fmt: skip
    first, again, other = (json.loads(run(capsys, *words, seed)[1])["responses"] for seed in ("3", "3", "4"))
    assert first == again
    assert first[0]["text"] != first[1]["text"]
    assert first != other


@pytest.mark.parametrize(
    ("question", "sentence"),
    [("", "the question is empty"), ("What <|video_pad|> slides?", "control token <|video_pad|>")],
)
def test_bad_questions(capsys, world, clip, question, sentence):
    code, _, err = run(capsys, "answer", clip, question, "--model", str(world / "model"))
    assert (code, err.count("\n")) == (2, 1)
    assert sentence in err


def test_bad_videos_are_named_before_the_model_is_loaded(capsys, world, clip, tmp_path):
    truncated = tmp_path / "cut.mp4"
    truncated.write_bytes(Path(clip).read_bytes()[:500])
    os.mkfifo(tmp_path / "pipe.mp4")
    for path in (tmp_path / "nowhere.mp4", truncated, tmp_path / "pipe.mp4"):
        code, _, err = run(capsys, "answer", str(path), "What?", "--model", str(tmp_path / "no model"))
        assert code == 2
        assert path.name in err
        assert "Traceback" not in err


def test_bad_models(capsys, world, clip, tmp_path):
    code, _, err = run(capsys, "answer", clip, "What?", "--model", str(tmp_path / "nowhere"))
    assert (code, "nowhere" in err) == (2, True)
    config = json.loads((world / "model/config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "gpt_oss"}))
    code, _, err = run(capsys, "answer", clip, "What?", "--model", str(tmp_path))
    assert (code, "gpt_oss" in err, "qwen2_5_vl" in err) == (2, True, True)


def test_a_prompt_beyond_the_context(capsys, world, clip):
    code, _, err = run(capsys, "answer", clip, "What?", "--model", str(world / "model"), "--max-tokens", "500")
    assert code == 2
    assert "fewer frames or a lower max_pixels" in err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            ["--devices.tensor", "2"],
            "--devices.tensor 2 ask for 2 devices, but there are 1 here (cpu)",
        ),
        (["--devices.data", "0"], "give whole numbers above 0"),
    ],
)
def test_devices_that_are_not_there(capsys, world, clip, given, says):
    code, _, err = run(capsys, "answer", clip, "What?", "--model", str(world / "model"), *given)
    assert (code, says in err) == (2, True), err


def test_several_greedy_samples_are_refused(capsys, world, clip):
    code, _, err = run(capsys, "answer", clip, "What?", "--model", str(world / "model"), "--samples", "2")
    assert (code, "--temperature" in err) == (2, True)


@pytest.fixture
def experiment(world, tmp_path):
    """The demo's fine-tuning with few clips."""
    file = tmp_path / "small.py"
    file.write_text(
        "from pathlib import Path\n"
        "from experiments.shapes_sft import make_config, make_tokenizer\n"
        f"data = Path({str(world)!r})\n"
        f"config = make_config(data, *make_tokenizer(data), Path({str(tmp_path / 'run')!r}), steps=9)\n"
    )
    return file


@pytest.mark.slow
def test_fields_of_an_experiment_can_be_changed(capsys, experiment, tmp_path):
    code, out, _ = run(
        capsys, "train", "--no-compilation-cache", str(experiment), "--steps", "2", "--optimizer.warmup", "1",
        "--batch.videos", "2", "--no-progress", "--no-tensorboard",
    )  # fmt: skip
    assert code == 0, out
    assert "finished after step 2" in out
    resolved = json.loads((tmp_path / "run/config.json").read_text())
    assert resolved["steps"] == 2
    assert resolved["optimizer"]["warmup"] == 1


def test_fields_of_an_experiment_that_are_none_are_refused(capsys, experiment, tmp_path):
    code, _, err = run(capsys, "train", str(experiment), "--optimizer.warmupp", "1")
    assert (code, "warmupp" in err) == (2, True)
    code, _, err = run(capsys, "train", str(tmp_path / "nowhere.py"))
    assert (code, "nowhere.py" in err) == (2, True)


COMMANDS = (
    "answer", "train", "evaluate", "compare", "ace", "ace-dataset", "score", "export", "convert-gguf", "transcribe",
    "check-videos", "plan", "buckets", "report",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(capsys, command):
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"vrjax {command}" in out.split("Examples", 1)[1]


def test_the_list_of_commands(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(name in out for name in COMMANDS)
