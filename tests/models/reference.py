"""A tiny Qwen2.5-VL with the same weights in transformers (torch, CPU) and in vrjax, and prompts for both.

The weights are made so that faults show: biases and norm weights are random, queries and keys are scaled until
attention is sharp (a head looks at few keys, so a wrong mask, rotation or bias moves the output), and the projections
back into the residual stream are small, so that rounding is not amplified from layer to layer. test_reference.py
measures both.

Weights are carried over here by name and shape, without vrjax.checkpoints.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from vrjax.models.attention import Visibility, row_attention
from vrjax.models.decoder import DecoderConfig, Remat
from vrjax.models.parameters import abstract_parameters, parameter_table
from vrjax.models.qwen2_5_vl import Qwen2_5VL, Qwen2_5VLConfig, VisionConfig, prompt_positions, vision_inputs

# Means and standard deviations as transformers' Qwen2VLImageProcessor has them.
MEAN = np.array([0.48145466, 0.4578275, 0.40821073])
STD = np.array([0.26862954, 0.26130258, 0.27577711])


def tiny_config(*, tied: bool, layers: int, full_layers: tuple[int, ...]) -> Qwen2_5VLConfig:
    """Sizes without powers of two in common: three queries a key head, three uneven mRoPE sections."""
    text = DecoderConfig(
        vocabulary=200,
        width=96,
        layers=3,
        heads=6,
        kv_heads=2,
        head_size=16,
        mlp=112,
        norm_eps=1e-6,
        rope_theta=20_000.0,
        tied=tied,
        qkv_bias=True,
        max_positions=4096,
        sections=(3, 1, 4),
    )
    vision = VisionConfig(
        layers=layers,
        width=48,
        heads=3,
        mlp=56,
        out_width=96,
        full_layers=full_layers,
        window=4,
        tokens_per_second=2,
    )
    return Qwen2_5VLConfig(text, vision, image_token=190, video_token=191, vision_start_token=192, vision_end_token=193)


def randomize(state: dict[str, torch.Tensor], seed: int) -> None:
    """Fill a state dict in place with weights that make faults visible (see the top of this file)."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in state.items():
        noise = torch.randn(tensor.shape, generator=generator)
        if tensor.ndim == 1:
            is_norm = "norm" in name or "ln_q" in name
            tensor.copy_(1 + 0.2 * noise if is_norm else 0.3 * noise)
            continue
        fan_in = tensor[0].numel()
        gain = 1.0
        if "q_proj" in name or "k_proj" in name:
            gain = 2.0
        elif any(part in name for part in ("o_proj", "down_proj", "attn.proj.")):
            gain = 0.3
        elif "embed_tokens" in name:
            gain = fan_in**0.5
        noise = noise * gain * fan_in**-0.5
        if "attn.qkv.weight" in name:
            noise[: 2 * tensor.shape[0] // 3] *= 2.0
        tensor.copy_(noise)


def module_name(published: str) -> str:
    """transformers' own name of a published tensor."""
    if published.startswith("visual."):
        return "model." + published
    if published.startswith("model."):
        return "model.language_model." + published.removeprefix("model.")
    return published


@dataclass(frozen=True)
class Clip:
    """A video, or an image where `seconds` (per temporal patch) is None. patches: uint8, merge-block order."""

    grid: tuple[int, int, int]
    seconds: float | None
    patches: np.ndarray

    def pixels(self) -> torch.Tensor:
        """Normalised as transformers' processor does it, computed in float64."""
        unit = self.patches.reshape(len(self.patches), 3, -1) / 255.0
        return torch.tensor(((unit - MEAN[:, None]) / STD[:, None]).reshape(len(self.patches), -1))


@dataclass(frozen=True)
class Prompt:
    tokens: np.ndarray
    clips: tuple[Clip, ...] = ()

    @property
    def grids(self) -> list[tuple[int, int, int]]:
        return [clip.grid for clip in self.clips]

    def positions(self, config: Qwen2_5VLConfig, **rule: Any) -> tuple[np.ndarray, int]:
        return prompt_positions(self.tokens, self.grids, [clip.seconds for clip in self.clips], config, **rule)


Part = int | tuple[tuple[int, int, int], float | None]


def compose(config: Qwen2_5VLConfig, seed: int, *parts: Part) -> Prompt:
    """A random prompt: a number stands for so many text tokens, (grid, seconds) for a video, (grid, None) an image."""
    rng = np.random.default_rng(seed)
    tokens, clips = [], []
    for part in parts:
        if isinstance(part, int):
            tokens.append(rng.integers(0, 180, part))
            continue
        grid, seconds = part
        # A smooth picture under noise, so that neighbouring patches are alike and frames differ.
        base = rng.integers(0, 256, (grid[0], 1, config.vision.patch_values))
        noise = rng.integers(0, 256, (grid[0], grid[1] * grid[2], config.vision.patch_values))
        patches = (0.3 * base + 0.7 * noise).astype(np.uint8).reshape(-1, config.vision.patch_values)
        clips.append(Clip(grid, seconds, patches))
        pad = config.image_token if seconds is None else config.video_token
        count = len(patches) // config.vision.merge_size**2
        tokens.append(np.array([config.vision_start_token, *[pad] * count, config.vision_end_token]))
    return Prompt(np.concatenate(tokens).astype(np.int32), tuple(clips))


@dataclass(frozen=True)
class Rows:
    """Arrays of packed rows for the vrjax model: [B, S], positions [3, B, S]."""

    tokens: Any
    positions: Any
    segment: Any
    branch: Any
    feature_index: Any
    vision: Any

    def visibility(self) -> Visibility:
        return Visibility(jnp.asarray(self.segment), jnp.asarray(self.branch))


jax.tree_util.register_dataclass(
    Rows, ["tokens", "positions", "segment", "branch", "feature_index", "vision"], meta_fields=[]
)


def pack(config: Qwen2_5VLConfig, rows: Sequence[Sequence[Prompt]], length: int | None = None, **sizes: int) -> Rows:
    """Prompts of each row one after the other, each a segment; rows padded to `length`. sizes: of `vision_inputs`."""
    length = length or max(sum(len(prompt.tokens) for prompt in row) for row in rows)
    shape = (len(rows), length)
    tokens, segment, branch = (np.zeros(shape, np.int32) for _ in range(3))
    positions, feature_index = np.zeros((3, *shape), np.int32), np.full(shape, -1, np.int32)
    clips = [clip for row in rows for prompt in row for clip in prompt.clips]
    vision, places = None, []
    if clips:
        vision, places = vision_inputs(
            [clip.patches for clip in clips], [clip.grid for clip in clips], config.vision, **sizes
        )
    clip = 0
    for number, row in enumerate(rows):
        start = 0
        for index, prompt in enumerate(row):
            here = slice(start, start + len(prompt.tokens))
            tokens[number, here], segment[number, here] = prompt.tokens, index + 1
            positions[:, number, here] = prompt.positions(config)[0]
            is_pad = (prompt.tokens == config.image_token) | (prompt.tokens == config.video_token)
            own = places[clip : clip + len(prompt.clips)]
            if own:
                feature_index[number, here][is_pad] = np.concatenate(own)
            clip, start = clip + len(prompt.clips), here.stop
    return Rows(tokens, positions, segment, branch, feature_index, vision)


def forward(model: Qwen2_5VL, rows: Rows, remat: Remat = False) -> tuple[jax.Array, jax.Array | None]:
    """Full-sequence logits [B, S, V] in one pass, and the vision features [M, D]."""
    features = None if rows.vision is None else model.encode(rows.vision, remat=bool(remat))
    x = model.embed(rows.tokens, features, rows.feature_index)
    visibility = rows.visibility()
    tables = model.text.tables(rows.positions)
    hidden, _ = model.text.run(
        x, tables, lambda q, k, v, memory: (row_attention(q, k, v, visibility), None), remat=remat
    )
    return model.text.logits(hidden), features


def loss(model: Qwen2_5VL, rows: Rows, cotangent: Any, remat: Remat = False) -> tuple[jax.Array, jax.Array]:
    """sum(logits x cotangent), and the logits."""
    logits, _ = forward(model, rows, remat)
    return (logits * cotangent).sum(), logits


@dataclass(frozen=True)
class Reference:
    """The two models. `graph` and `params` are the split NNX module; the functions are compiled once per shape."""

    config: Qwen2_5VLConfig
    torch_model: Any = field(repr=False)
    graph: Any = field(repr=False)
    params: Any = field(repr=False)
    double: dict[str, Any] = field(default_factory=dict, repr=False)

    def function(self, call: Callable[..., Any], graph: Any = None) -> Callable[..., Any]:
        """`call(model, *inputs)` as a fresh compiled function of (params, *inputs)."""
        graph = self.graph if graph is None else graph
        return jax.jit(lambda params, *inputs: call(nnx.merge(graph, params), *inputs))

    @cached_property
    def forward(self) -> Callable[..., Any]:
        return self.function(forward)

    def outputs(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Logits [B, S, V] and the features of the rows' pads in the order in which they stand, [pads, D]."""
        logits, features = self.forward(self.params, rows)
        pads = rows.feature_index[rows.feature_index >= 0]
        return np.asarray(logits), np.zeros((0, 0)) if features is None else np.asarray(features)[pads]

    @cached_property
    def gradient(self) -> Callable[..., Any]:
        return jax.jit(jax.grad(self.function(loss), has_aux=True))

    def logits_and_gradient(self, rows: Rows, cotangent: np.ndarray) -> tuple[np.ndarray, Any]:
        """Logits, and the gradient of sum(logits x cotangent) in every parameter."""
        gradient, logits = self.gradient(self.params, rows, cotangent)
        return np.asarray(logits), gradient

    def torch_in(self, dtype: torch.dtype) -> Any:
        if dtype == torch.float32:
            return self.torch_model
        if "model" not in self.double:
            self.double["model"] = copy.deepcopy(self.torch_model).to(dtype)
        return self.double["model"]

    @torch.no_grad()
    def torch_features(self, clip: Clip, dtype: torch.dtype = torch.float32) -> np.ndarray:
        tower = self.torch_in(dtype).model.visual
        return tower(clip.pixels().to(dtype), torch.tensor([clip.grid]), return_dict=True).pooler_output.numpy()

    def torch_gradients(self, prompt: Prompt, cotangent: np.ndarray) -> Any:
        """Gradient of sum(logits x cotangent [S, V]) in every parameter, as a tree like `params`."""
        self.torch_model.zero_grad()
        with torch.enable_grad():
            (self._torch_logits([prompt], torch.float32)[0] * torch.tensor(cotangent)).sum().backward()
        gradients = {name: weight.grad.numpy().copy() for name, weight in self.torch_model.named_parameters()}
        self.torch_model.zero_grad()
        return arrange(gradients, self.params)[0]

    @torch.no_grad()
    def torch_logits(self, prompts: Sequence[Prompt], dtype: torch.dtype = torch.float32) -> list[np.ndarray]:
        """Logits of each prompt from one right-padded batch, with our explicit positions."""
        out = self._torch_logits(prompts, dtype).numpy()
        return [out[row, : len(prompt.tokens)] for row, prompt in enumerate(prompts)]

    def _torch_logits(self, prompts: Sequence[Prompt], dtype: torch.dtype) -> torch.Tensor:
        length = max(len(prompt.tokens) for prompt in prompts)
        tokens, mask = (np.zeros((len(prompts), length), np.int64) for _ in range(2))
        positions = np.zeros((3, len(prompts), length), np.int64)
        for row, prompt in enumerate(prompts):
            here = slice(0, len(prompt.tokens))
            tokens[row, here], mask[row, here] = prompt.tokens, 1
            positions[:, row, here] = prompt.positions(self.config)[0]
        clips = [clip for prompt in prompts for clip in prompt.clips]
        vision = {}
        for kind, values in (("image", "pixel_values"), ("video", "pixel_values_videos")):
            own = [clip for clip in clips if (clip.seconds is None) == (kind == "image")]
            if own:
                vision[values] = torch.cat([clip.pixels() for clip in own]).to(dtype)
                vision[f"{kind}_grid_thw"] = torch.tensor([clip.grid for clip in own])
        return self.torch_in(dtype)(
            input_ids=torch.tensor(tokens),
            attention_mask=torch.tensor(mask),
            position_ids=torch.tensor(positions),
            use_cache=False,
            **vision,
        ).logits


def arrange(
    tensors: dict[str, np.ndarray], abstract: Any, rename: Callable[[str], str] = module_name
) -> tuple[Any, set[str]]:
    """transformers' arrays in the tree of vrjax's parameters, and the names used. Raises where shapes differ.

    rename: transformers' own name of a published tensor.
    """
    arrays, used = {}, set()
    for spec in parameter_table(abstract):
        names = [rename(name) for name in spec.hf_names()]
        used.update(names)
        parts = [tensors[name] for name in names]
        if any(part.shape != spec.hf_shape for part in parts):
            raise ValueError(f"{names[0]} has shape {parts[0].shape}, want {spec.hf_shape}")
        stacked = np.stack(parts) if spec.layers is not None else parts[0]
        arrays[spec.path] = jnp.asarray(stacked.reshape(spec.shape))

    def place(path: tuple[Any, ...], _: Any) -> jax.Array:
        return arrays[tuple(str(entry.key) for entry in path if hasattr(entry, "key"))]

    return jax.tree.map_with_path(place, abstract), used


def build_reference(config: Qwen2_5VLConfig, seed: int = 0) -> Reference:
    raw = {**config.to_json(), "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    published = Qwen2_5_VLConfig(**raw)
    model = Qwen2_5_VLForConditionalGeneration(published).eval().float()
    tied = model.lm_head.weight is model.model.language_model.embed_tokens.weight
    if tied != config.text.tied:
        raise ValueError(f"the config says tied={config.text.tied}, transformers built tied={tied}")
    state = {name: tensor for name, tensor in model.state_dict().items() if not (tied and name == "lm_head.weight")}
    randomize({name: state[name] for name in sorted(state)}, seed)
    graph, abstract = abstract_parameters(lambda: Qwen2_5VL(config, nnx.Rngs(0)))
    params, used = arrange({name: tensor.numpy() for name, tensor in state.items()}, abstract)
    if set(state) != used:
        raise ValueError(f"tensors of transformers without a place: {sorted(set(state) - used)}")
    return Reference(config, model, graph, params)


def graph_of(config: Qwen2_5VLConfig) -> Any:
    """The graph of a model built to another configuration, to be merged with parameters of the same shapes."""
    return abstract_parameters(lambda: Qwen2_5VL(config, nnx.Rngs(0)))[0]


def deviation(mine: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference of logits in units of their standard deviation."""
    return float(np.abs(mine - theirs).max() / theirs.std())


def relative(mine: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference relative to the largest value."""
    return float(np.abs(mine - theirs).max() / np.abs(theirs).max())
