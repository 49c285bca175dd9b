import re
from types import SimpleNamespace

import jax
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, PartitionSpec

from tests.checkpoints.test_published_sizes import LLAMAS, raw_llama
from vrjax.errors import InputError
from vrjax.loading import abstract_model
from vrjax.models.decoder import DecoderConfig
from vrjax.models.llama import LlamaConfig
from vrjax.models.parameters import abstract_parameters, parameter_table
from vrjax.models.qwen2_5_vl import Qwen2_5VL, Qwen2_5VLConfig, VisionConfig
from vrjax.sharding import MESH_AXES, Rules, make_mesh, parameter_shardings, rollout_rules, spec, update_rules


def mesh_of(data=1, fsdp=1, seq=1, tensor=1) -> AbstractMesh:
    """A mesh of any size: rules need no devices."""
    return AbstractMesh((data, fsdp, seq, tensor), MESH_AXES)


def true_model(width, mlp, layers, heads, kv_heads, tied, vocabulary):
    """The published sizes (METHODS: Qwen2.5-VL), as shapes."""
    text = DecoderConfig(
        vocabulary=vocabulary, width=width, layers=layers, heads=heads, kv_heads=kv_heads, head_size=128, mlp=mlp,
        norm_eps=1e-6, rope_theta=1e6, tied=tied, qkv_bias=True, max_positions=128000, sections=(16, 24, 24),
    )  # fmt: skip
    vision = VisionConfig(
        layers=32, width=1280, heads=16, mlp=3420, out_width=width, full_layers=(7, 15, 23, 31), window=4,
        tokens_per_second=2,
    )  # fmt: skip
    config = Qwen2_5VLConfig(text, vision, 151655, 151656, 151652, 151653)
    return config, abstract_parameters(lambda: Qwen2_5VL(config, nnx.Rngs(0)))[1]


@pytest.fixture(scope="module")
def seven():
    return true_model(3584, 18944, 28, 28, 4, False, 152064)


def by_name(config, params, mesh, rules):
    shardings = parameter_shardings(params, mesh, rules, config)
    names = [entry.hf_name for entry in parameter_table(params)]
    flat = {tuple(map(str, path)): leaf.get_value() for path, leaf in nnx.to_flat_state(shardings)}
    return {name: flat[entry.path].spec for name, entry in zip(names, parameter_table(params), strict=True)}


def test_update_rules_of_the_7b_by_hand(seven):
    config, params = seven
    specs = by_name(config, params, mesh_of(data=2, fsdp=4, tensor=4), update_rules())
    layer = "model.layers.{layer}."
    assert specs["model.embed_tokens.weight"] == PartitionSpec("tensor", "fsdp")
    assert specs["lm_head.weight"] == PartitionSpec("tensor", "fsdp")
    assert specs[layer + "self_attn.q_proj.weight"] == PartitionSpec(None, "tensor", "fsdp")
    assert specs[layer + "self_attn.k_proj.weight"] == PartitionSpec(None, "tensor", "fsdp")
    assert specs[layer + "self_attn.o_proj.weight"] == PartitionSpec(None, "fsdp", "tensor")
    assert specs[layer + "self_attn.k_proj.bias"] == PartitionSpec(None, "tensor")
    assert specs[layer + "mlp.down_proj.weight"] == PartitionSpec(None, "fsdp", "tensor")
    assert specs[layer + "input_layernorm.weight"] == PartitionSpec(None, None)
    assert specs["visual.blocks.{layer}.attn.qkv.weight"] == PartitionSpec(None, None, ("fsdp", "tensor"))
    assert specs["visual.patch_embed.proj.weight"] == PartitionSpec(("fsdp", "tensor"), None)


def test_rollout_rules_cut_no_weight_over_fsdp(seven):
    config, params = seven
    specs = by_name(config, params, mesh_of(data=2, fsdp=8, tensor=2), rollout_rules())
    assert all("fsdp" not in str(value) for value in specs.values())
    assert specs["model.layers.{layer}.mlp.up_proj.weight"] == PartitionSpec(None, "tensor", None)


def test_kv_heads_are_replicated_where_tensor_does_not_divide_them(seven):
    config, params = seven  # 28 heads, 4 kv heads; 7 divides 28 and 18944 is no multiple of 7
    rules = Rules(heads="tensor", kv_heads="tensor")
    specs = by_name(config, params, mesh_of(tensor=7), rules)
    assert specs["model.layers.{layer}.self_attn.q_proj.weight"] == PartitionSpec(None, "tensor", None)
    assert specs["model.layers.{layer}.self_attn.k_proj.weight"] == PartitionSpec(None, None, None)
    # 4 * 128 rows would divide by 8, but a head would be split
    assert spec(rules, ("kv_heads", None), (4 * 128, 10), mesh_of(tensor=8), head_size=128) == PartitionSpec(None, None)


def test_heads_are_never_split(seven):
    config, params = seven  # 28 heads over tensor 8: 3584 rows divide, heads do not
    with pytest.raises(InputError) as error:
        parameter_shardings(params, mesh_of(tensor=8), update_rules(), config)
    text = str(error.value)
    rows = [line for line in text.splitlines() if "not divisible" in line]
    assert len(rows) == 3
    assert all(re.search(r"self_attn\.[qo]_proj\.(weight|bias) +heads +28 heads +not divisible by 8", r) for r in rows)


def test_all_misfits_stand_in_one_table(seven):
    config, params = seven
    with pytest.raises(InputError) as error:
        parameter_shardings(params, mesh_of(fsdp=3, tensor=5), update_rules(), config)
    text = str(error.value)
    for name in ("model.embed_tokens.weight", "mlp.gate_proj.weight", "self_attn.q_proj.bias", "lm_head.weight"):
        assert name in text
    assert "data 1, fsdp 3, seq 1, tensor 5" in text


@pytest.mark.parametrize(
    ("sizes", "mesh"),
    [
        ((2048, 11008, 36, 16, 2, True, 151936), {"fsdp": 32, "tensor": 1}),
        ((2048, 11008, 36, 16, 2, True, 151936), {"fsdp": 4, "tensor": 8}),
        ((3584, 18944, 28, 28, 4, False, 152064), {"fsdp": 64, "tensor": 4}),
        ((8192, 29568, 80, 64, 8, False, 152064), {"data": 2, "fsdp": 16, "tensor": 8}),
    ],
)
def test_published_sizes_fit_usual_meshes(sizes, mesh):
    config, params = true_model(*sizes)
    for rules in (update_rules(), rollout_rules()):
        parameter_shardings(params, mesh_of(**mesh), rules, config)


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("Llama-3.2-1B", {"fsdp": 8, "tensor": 4}),
        ("Llama-3.2-1B", {"fsdp": 2, "tensor": 16}),  # 8 kv heads: kept whole on each
        ("Llama-3.2-3B", {"data": 2, "fsdp": 16, "tensor": 8}),
        ("SmolLM2-135M", {"fsdp": 8, "tensor": 3}),
    ],
)
def test_published_llamas_fit_usual_meshes(name, mesh):
    config = LlamaConfig.from_json(raw_llama(*LLAMAS[name][:-1]))
    params = abstract_model(config)[1]
    for rules in (update_rules(), rollout_rules()):
        specs = by_name(config, params, mesh_of(**mesh), rules)
        kv = "tensor" if config.text.kv_heads % mesh["tensor"] == 0 else None
        assert specs["model.layers.{layer}.self_attn.k_proj.weight"][1] == kv
        assert specs["model.embed_tokens.weight"][0] == "tensor"
        assert ("lm_head.weight" in specs) is not config.text.tied


def test_nine_heads_over_two_devices_are_refused():
    config = LlamaConfig.from_json(raw_llama(*LLAMAS["SmolLM2-135M"][:-1]))
    with pytest.raises(InputError, match=r"self_attn\.q_proj\.weight +heads +9 heads +not divisible by 2"):
        parameter_shardings(abstract_model(config)[1], mesh_of(tensor=2), rollout_rules(), config)


def test_two_dimensions_on_one_mesh_axis_are_refused():
    with pytest.raises(InputError, match="tensor already cuts mlp"):
        spec(Rules(mlp="tensor", embed="tensor"), ("mlp", "embed"), (8, 8), mesh_of(tensor=2))


def test_unknown_axes_are_refused():
    with pytest.raises(InputError, match="no sharding rule for the logical axis 'colour'"):
        spec(Rules(), ("colour",), (8,), mesh_of())
    with pytest.raises(InputError, match="the mesh has no axis expert"):
        spec(Rules(mlp="expert"), ("mlp",), (8,), mesh_of())


@given(st.integers(1, 64), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]))
def test_a_spec_always_divides(size, fsdp, tensor):
    mesh = mesh_of(fsdp=fsdp, tensor=tensor)
    rules = Rules(embed=("fsdp", "tensor"))
    if size % (fsdp * tensor):
        with pytest.raises(InputError, match="not divisible"):
            spec(rules, ("embed",), (size,), mesh)
    else:
        assert spec(rules, ("embed",), (size,), mesh) == PartitionSpec(("fsdp", "tensor"))


class TestMesh:
    devices = jax.devices()[:1]

    def test_rest_is_taken(self):
        mesh = make_mesh(devices=self.devices)
        assert dict(mesh.shape) == {"data": 1, "fsdp": 1, "seq": 1, "tensor": 1}

    @pytest.mark.parametrize("sizes", [{"fsdp": 2}, {"fsdp": -1, "tensor": 2}, {"data": -1}, {"data": 0}])
    def test_what_does_not_multiply_out(self, sizes):
        with pytest.raises(InputError, match="mesh \\(data"):
            make_mesh(**sizes, devices=self.devices)


def test_a_text_model_has_its_head_size_itself(seven):
    _, params = seven
    parameter_shardings(params, mesh_of(), update_rules(), SimpleNamespace(head_size=128))
