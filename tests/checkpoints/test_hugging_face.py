import json
import resource
import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from vrjax.checkpoints import load_parameters, save_parameters
from vrjax.checkpoints.tensor_files import TensorToWrite, write_tensors
from vrjax.errors import CheckpointError, InputError
from vrjax.loading import abstract_model
from vrjax.models.parameters import parameter_table


def same_bits(first, second) -> bool:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return jax.tree.structure(first) == jax.tree.structure(second) and all(
        a.dtype == b.dtype and np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs
    )


@pytest.fixture
def saved(make_model, tmp_path):
    """A model's directory and its shapes."""
    model = make_model()
    save_parameters(model.params, tmp_path / "model")
    return tmp_path / "model", abstract_model(model.config)[1]


def rewrite(directory, change):
    """Load the single file with the reference library, change the dict of tensors, and write it back."""
    file = directory / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("shard_bytes", [10**9, 40_000])
@pytest.mark.parametrize("tied", [False, True])
def test_load_export_load_is_bit_identical(make_model, tmp_path, dtype, shard_bytes, tied):
    model = make_model(tied, dtype)
    shapes = abstract_model(model.config)[1]
    save_parameters(model.params, tmp_path / "one", shard_bytes=shard_bytes)
    first = load_parameters(tmp_path / "one", shapes)
    save_parameters(first, tmp_path / "two", shard_bytes=shard_bytes)
    second = load_parameters(tmp_path / "two", shapes)
    assert same_bits(model.params, first)
    assert same_bits(first, second)
    one, two = (sorted((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert [file.name for file in one] == [file.name for file in two]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True))
    assert (len(one) > 2) == (shard_bytes < 10**9)


def test_files_hold_the_declared_tensors_for_the_reference_reader(make_model, tmp_path):
    model = make_model(dtype=jnp.bfloat16)
    save_parameters(model.params, tmp_path / "m", shard_bytes=40_000)
    index = json.loads((tmp_path / "m" / "model.safetensors.index.json").read_text())
    found = {}
    for file in set(index["weight_map"].values()):
        assert (tmp_path / "m" / file).stat().st_size < 40_000 + 40_000
        found |= load_file(tmp_path / "m" / file)
        with safe_open(tmp_path / "m" / file, "numpy") as opened:
            assert opened.metadata() == {"format": "pt"}
    assert set(found) == set(index["weight_map"])
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in found.values())
    gate = np.asarray(model.params["text"]["layers"]["gate"].get_value())
    np.testing.assert_array_equal(found["model.layers.1.mlp.gate_proj.weight"], gate[1])
    assert found["visual.patch_embed.proj.weight"].shape == (32, 3, 2, 14, 14)
    assert found["model.norm.weight"].dtype == ml_dtypes.bfloat16


def test_special_values_keep_their_bits(make_model, tmp_path):
    model = make_model()
    bits = np.array([0x7FC01234, 0xFF800000, 0x00000001, 0x80000000] * 16, np.uint32)
    norm = model.params["text"]["norm"]
    norm.set_value(jnp.asarray(bits.view(np.float32)))
    save_parameters(model.params, tmp_path / "m")
    loaded = load_parameters(tmp_path / "m", abstract_model(model.config)[1])
    np.testing.assert_array_equal(np.asarray(loaded["text"]["norm"].get_value()).view(np.uint32), bits)


def test_mixed_types_stay_aligned_in_the_file(tmp_path):
    """An odd number of 2-byte values before a 4-byte tensor would put it off its alignment."""
    values = {"a": np.ones(3, ml_dtypes.bfloat16), "b": np.full(2, 1.5, np.float32), "c": np.ones(1, np.float16)}
    tensors = [TensorToWrite(name, v.shape, v.dtype, lambda v=v: v) for name, v in values.items()]
    write_tensors(tmp_path / "model.safetensors", tensors)
    raw = (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    for name, value in values.items():
        assert (8 + size + header[name]["data_offsets"][0]) % value.dtype.itemsize == 0
        np.testing.assert_array_equal(load_file(tmp_path / "model.safetensors")[name], value)


def test_names_of_transformers_modules_load(saved):
    directory, shapes = saved
    before = load_parameters(directory, shapes)

    def rename(tensors):
        for name in list(tensors):
            if name.startswith("visual."):
                tensors["model." + name] = tensors.pop(name)
            elif name.startswith("model."):
                tensors["model.language_model." + name.removeprefix("model.")] = tensors.pop(name)

    rewrite(directory, rename)
    assert "model.language_model.layers.0.mlp.up_proj.weight" in load_file(directory / "model.safetensors")
    assert same_bits(before, load_parameters(directory, shapes))


def test_every_fault_is_named(saved):
    directory, shapes = saved

    def spoil(tensors):
        tensors.pop("model.layers.1.mlp.up_proj.weight")
        tensors.pop("visual.merger.ln_q.weight")
        tensors["model.layers.7.mlp.up_proj.weight"] = np.zeros((96, 64), np.float32)
        tensors["model.norm.weight"] = np.zeros(63, np.float32)
        tensors["lm_head.weight"] = np.zeros((96, 64), np.int32)

    rewrite(directory, spoil)
    with pytest.raises(CheckpointError) as error:
        load_parameters(directory, shapes)
    text = str(error.value)
    assert "missing (2)" in text
    assert "model.layers.1.mlp.up_proj.weight" in text
    assert "visual.merger.ln_q.weight" in text
    assert "spare (1): model.layers.7.mlp.up_proj.weight in model.safetensors" in text
    assert "misshapen (1): model.norm.weight in model.safetensors is [63], not [64]" in text
    assert "not floating point (1): lm_head.weight in model.safetensors is I32" in text


def test_only_the_first_ten_are_listed(saved):
    directory, shapes = saved
    rewrite(directory, lambda tensors: [tensors.pop(name) for name in list(tensors) if name.startswith("visual.")])
    with pytest.raises(CheckpointError, match=r"missing \(54\).*, and 44 more"):
        load_parameters(directory, shapes)


def test_a_missing_head_hints_at_the_tie(saved):
    directory, shapes = saved
    rewrite(directory, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(CheckpointError, match="tie_word_embeddings to true"):
        load_parameters(directory, shapes)


def test_a_tied_head_must_equal_the_embedding(make_model, tmp_path):
    model = make_model(tied=True)
    save_parameters(model.params, tmp_path / "m")
    shapes = abstract_model(model.config)[1]
    before = load_parameters(tmp_path / "m", shapes)
    rewrite(tmp_path / "m", lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].copy()}))
    assert same_bits(before, load_parameters(tmp_path / "m", shapes))

    def change_last(tensors):
        tensors["lm_head.weight"][-1, -1] += 1

    rewrite(tmp_path / "m", change_last)
    with pytest.raises(CheckpointError, match="ties the head"):
        load_parameters(tmp_path / "m", shapes)


@pytest.mark.parametrize("kept", [4, 200, -3])
def test_a_truncated_file_is_a_sentence(saved, kept):
    directory, shapes = saved
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: not a whole safetensors file"):
        load_parameters(directory, shapes)


def test_pickles_are_refused(saved):
    directory, shapes = saved
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="pickle"):
        load_parameters(directory, shapes)


def test_an_index_that_lies_is_named(make_model, tmp_path):
    model = make_model()
    shapes = abstract_model(model.config)[1]
    save_parameters(model.params, tmp_path / "m", shard_bytes=40_000)
    index = tmp_path / "m" / "model.safetensors.index.json"
    raw = json.loads(index.read_text())
    first = sorted(set(raw["weight_map"].values()))[0]
    (tmp_path / "m" / first).rename(tmp_path / "m" / "elsewhere")
    with pytest.raises(CheckpointError, match=f"not there: {first}"):
        load_parameters(tmp_path / "m", shapes)
    (tmp_path / "m" / "elsewhere").rename(tmp_path / "m" / first)
    raw["weight_map"]["model.ghost.weight"] = first
    index.write_text(json.dumps(raw))
    with pytest.raises(CheckpointError, match=r"not in their files: model\.ghost\.weight"):
        load_parameters(tmp_path / "m", shapes)
    raw["weight_map"]["model.ghost.weight"] = "../outside.safetensors"
    index.write_text(json.dumps(raw))
    with pytest.raises(CheckpointError, match="outside of its directory"):
        load_parameters(tmp_path / "m", shapes)


def test_casting_is_the_nearest_bfloat16(saved):
    directory, shapes = saved
    exact = load_parameters(directory, shapes)
    cast = load_parameters(directory, shapes, dtype=jnp.bfloat16)
    for wide, narrow in zip(jax.tree.leaves(exact), jax.tree.leaves(cast), strict=True):
        np.testing.assert_array_equal(np.asarray(narrow), np.asarray(wide).astype(ml_dtypes.bfloat16))


def test_progress_counts_every_byte(saved):
    directory, shapes = saved
    seen = []
    params = load_parameters(directory, shapes, progress=lambda done, total: seen.append((done, total)))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    assert seen[-1] == (size, size)
    assert len(seen) == len(parameter_table(shapes))


def test_a_directory_with_something_in_it_is_refused(saved, make_model):
    directory, _ = saved
    before = (directory / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match="not an empty directory"):
        save_parameters(make_model(seed=1).params, directory)
    assert (directory / "model.safetensors").read_bytes() == before


FULL_DISK = """
import resource, sys
sys.path.insert(0, {tests!r})
from conftest import random_params, small_config
from vrjax.checkpoints import save_parameters
from vrjax.checkpoints.tensor_files import TensorToWrite, write_tensors
from vrjax.errors import RunError
params = random_params(small_config())
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save_parameters(params, {out!r})
except RunError as error:
    print(error, error.exit_code)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on file sizes")
def test_no_room_is_a_run_error_and_leaves_nothing(tmp_path, request):
    script = FULL_DISK.format(tests=str(request.path.parent), out=str(tmp_path / "out" / "model"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "model: there is no room left to write. Nothing was left behind." in done.stdout, done.stderr
    assert done.stdout.strip().endswith(" 1")
    assert list((tmp_path / "out").iterdir()) == []
