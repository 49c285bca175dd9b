import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import vrjax
from vrjax.checkpoints import TrainingCheckpoints, write_model_files
from vrjax.commands.export import Export
from vrjax.errors import CheckpointError, InputError, RunError
from vrjax.generation.prompts import Vision, build_prompt
from vrjax.models.attention import Visibility, row_attention
from vrjax.models.qwen2_5_vl import vision_inputs

from .test_hugging_face import same_bits


def logits_of(model, tokens, positions, inputs, index):
    module = nnx.merge(model.graph, model.params)
    x = module.embed(tokens, module.encode(inputs), index)
    visible = Visibility(jnp.ones_like(tokens), jnp.zeros_like(tokens))
    hidden, _ = module.text.run(
        x, module.text.tables(positions), lambda q, k, v, memory: (row_attention(q, k, v, visible), None)
    )
    return np.asarray(module.text.logits(hidden))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shard_bytes", [10**9, 40_000])
def test_transformers_loads_the_export_and_gives_the_same_logits(make_model, tmp_path, tied, shard_bytes):
    from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration

    model = make_model(tied)
    vrjax.save(model, tmp_path / "out", shard_bytes=shard_bytes)
    grid, config = (2, 6, 10), model.config
    patches = np.random.default_rng(0).integers(0, 256, (120, 1176), dtype=np.uint8)
    prompt = build_prompt(model.chat, config, "what happens ?", [Vision(patches, grid, 1.0, "clip")])
    inputs, places = vision_inputs([patches], [grid], config.vision)
    ours = logits_of(model, prompt.tokens[None], prompt.positions[:, None], inputs, prompt.feature_index(places)[None])

    reference, report = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    pixels = json.loads((tmp_path / "out" / "preprocessor_config.json").read_text())
    values = patches.reshape(-1, 3, 392) / 255.0
    mean, std = (np.array(pixels[key])[None, :, None] for key in ("image_mean", "image_std"))
    with torch.no_grad():
        theirs = reference.eval()(
            input_ids=torch.tensor(prompt.tokens[None]).long(),
            pixel_values_videos=torch.tensor((values - mean) / std).reshape(-1, 1176).float(),
            video_grid_thw=torch.tensor([grid]),
            position_ids=torch.tensor(prompt.positions[:, None]).long(),
        ).logits.numpy()
    assert np.abs(ours - theirs).max() <= 1e-4 * theirs.std()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("what happens ?")["input_ids"] == [1, 2, 6]
    assert tokenizer.eos_token == "<|im_end|>"


def test_the_export_loads_back_whole(make_model, tmp_path):
    model = make_model(dtype=jnp.bfloat16)
    vrjax.save(model, tmp_path / "out")
    found = vrjax.load(tmp_path / "out", dtype="stored")
    assert found.config == model.config
    assert same_bits(model.params, found.params)
    assert found.chat.end_ids == model.chat.end_ids == found.generation.end_ids
    assert found.directory == tmp_path / "out"
    assert jax.tree.leaves(vrjax.load(tmp_path / "out").params)[0].dtype == jnp.float32  # this machine's default: CPU
    assert jax.tree.structure(nnx.split(nnx.merge(found.graph, found.params))[1]) == jax.tree.structure(model.params)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_the_chat_template_writes_what_prompts_hold(make_model, tmp_path):
    from transformers import AutoTokenizer

    model = make_model()
    vrjax.save(model, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    messages = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": "what happens ?"}]}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
        "<|vision_start|><|video_pad|><|vision_end|>what happens ?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_pixel_limits_and_recommendations_of_the_source_are_kept(make_model, tmp_path):
    vrjax.save(make_model(), tmp_path / "one")
    for name in ("preprocessor_config.json", "generation_config.json"):
        raw = json.loads((tmp_path / "one" / name).read_text())
        (tmp_path / "one" / name).write_text(json.dumps({**raw, "max_pixels": 12345, "temperature": 0.5}))
    model = vrjax.load(tmp_path / "one")
    assert model.generation.temperature == 0.5
    vrjax.save(model, tmp_path / "two")
    assert json.loads((tmp_path / "two" / "preprocessor_config.json").read_text())["max_pixels"] == 12345
    assert json.loads((tmp_path / "two" / "generation_config.json").read_text())["temperature"] == 0.5


def test_what_cannot_be_loaded_is_said(make_model, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="no such model directory"):
        vrjax.load(tmp_path / "nowhere" / "at" / "all")
    with pytest.raises(CheckpointError, match=r"config\.json: cannot be read"):
        vrjax.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not valid JSON"):
        vrjax.load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(CheckpointError, match=r"model_type 'mamba' is not supported\. Known types: .*qwen2_5_vl"):
        vrjax.load(tmp_path)


def test_offline_hub_is_a_sentence(tmp_path):
    script = (
        "import vrjax\ntry:\n    vrjax.load('some-owner/some-model')\nexcept Exception as e:\n    print(type(e), e)"
    )
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=env)
    assert "InputError" in done.stdout, done.stderr
    assert "some-owner/some-model: there is no such directory, and the Hugging Face hub" in done.stdout


def test_importing_vrjax_is_light():
    script = "import sys, vrjax; print([name for name in ('jax', 'flax', 'transformers') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def run_directory(make_model, tmp_path):
    """A run with steps 1 to 3, step 2 the best; step n holds the weights of seed n."""
    model = make_model()
    run = tmp_path / "run"
    write_model_files(model.config, model.chat, run / "model")
    with TrainingCheckpoints(run / "checkpoints", keep_last=3, metric="val/loss", mode="min") as checkpoints:
        for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0)):
            params = make_model(seed=step, dtype=jnp.bfloat16).params
            checkpoints.save(step, params, {"count": jnp.zeros(())}, metrics={"val/loss": loss})
    return run


@pytest.mark.parametrize(
    ("place", "step", "seed"), [("", None, 2), ("", 3, 3), ("checkpoints", None, 2), ("checkpoints/1", None, 1)]
)
def test_a_run_is_exported(make_model, run_directory, tmp_path, place, step, seed):
    assert Export(str(run_directory / place), tmp_path / "out", step=step).run() == 0
    found = vrjax.load(tmp_path / "out", dtype="stored")
    assert same_bits(make_model(seed=seed, dtype=jnp.bfloat16).params, found.params)
    assert sorted(path.name for path in (run_directory / "checkpoints").iterdir()) == ["1", "2", "3"]


def test_a_directory_is_exported_in_another_type(make_model, tmp_path):
    vrjax.save(make_model(), tmp_path / "in")
    assert Export(str(tmp_path / "in"), tmp_path / "out", dtype="bfloat16", shard_gb=4e-5).run() == 0
    assert (tmp_path / "out" / "model.safetensors.index.json").is_file()
    found = vrjax.load(tmp_path / "out", dtype="stored")
    assert same_bits(make_model(dtype=jnp.bfloat16).params, found.params)


def test_bad_requests_to_export(make_model, run_directory, tmp_path):
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 9\. Steps there: 1, 2, 3"):
        Export(str(run_directory), tmp_path / "out", step=9).run()
    with pytest.raises(InputError, match="Give only one"):
        Export(str(run_directory / "checkpoints" / "1"), tmp_path / "out", step=2).run()
    vrjax.save(make_model(), tmp_path / "in")
    with pytest.raises(InputError, match="--step names a checkpoint of a run"):
        Export(str(tmp_path / "in"), tmp_path / "out", step=2).run()
    with pytest.raises(InputError, match="not an empty directory"):
        Export(str(tmp_path / "in"), run_directory).run()
    assert not (tmp_path / "out").exists()


def test_a_failed_save_leaves_nothing(make_model, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vrjax.loading.write_parameters", full)
    with pytest.raises(RunError, match="no room left"):
        vrjax.save(make_model(), tmp_path / "deep" / "out")
    assert list((tmp_path / "deep").iterdir()) == []
