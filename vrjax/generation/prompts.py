"""Chat prompts: text, images and videos to token ids, positions and places for vision features. Host side.

The template is Qwen's, written out here because its pieces matter: everything up to the question (system text, video)
is the *trunk*, which all questions about a video and all samples of a prompt share; the rest is the *branch*.

    <|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n<|im_start|>user\\n      trunk
    <|vision_start|><|video_pad|>…<|vision_end|>                                          trunk
    QUESTION<|im_end|>\\n<|im_start|>assistant\\n                                          branch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int, UInt8

from vrjax.errors import InputError
from vrjax.models.qwen2_5_vl import PositionRule, Qwen2_5VLConfig, prompt_positions
from vrjax.models.qwen2_5_vl.layout import Grid

if TYPE_CHECKING:
    from vrjax.video import FramePlan

SYSTEM = "You are a helpful assistant."


@dataclass(frozen=True)
class Vision:
    """One video, or one image, as the model reads it.

    patches: uint8, t·h·w rows in merge-block order; grid: (t, h, w) in patches;
    seconds_per_grid: seconds that a temporal patch spans, None for an image; key: names the content, for caches.
    """

    patches: UInt8[np.ndarray, "S V"]
    grid: Grid
    seconds_per_grid: float | None
    key: str

    @staticmethod
    def of_plan(plan: FramePlan, patches: UInt8[np.ndarray, "S V"]) -> list[Vision]:
        """A video's patches as one video, or as one image a frame where the plan says `frames_as_images`."""
        if not plan.options.frames_as_images:
            return [Vision(patches, plan.grid, plan.seconds_per_grid, plan.hash)]
        items, start = [], 0
        for number, grid in enumerate(plan.grids):
            count = grid[0] * grid[1] * grid[2]
            items.append(Vision(patches[start : start + count], grid, None, f"{plan.hash}/{number}"))
            start += count
        return items


@dataclass(frozen=True)
class Prompt:
    """Token ids with what the model needs beside them.

    tokens: [S] with pads expanded; positions: [3, S]; next_position: of the token that follows;
    vision: the images and videos in order; vision_at: index of the first pad of each; trunk: how many tokens the
    questions about one video share; name: for messages and random addresses.
    """

    tokens: Int[np.ndarray, "S"]
    positions: Int[np.ndarray, "3 S"]
    next_position: int
    vision: tuple[Vision, ...] = ()
    vision_at: tuple[int, ...] = ()
    trunk: int = 0
    name: str = ""

    def __len__(self) -> int:
        return len(self.tokens)

    def feature_index(self, places: Sequence[Int[np.ndarray, "M"]]) -> Int[np.ndarray, "S"]:
        """Index of each token's vision feature (-1: text). places: as `vision_inputs` returned them, one a vision."""
        index = np.full(len(self.tokens), -1, np.int32)
        for start, place in zip(self.vision_at, places, strict=True):
            index[start : start + len(place)] = place
        return index


@dataclass(frozen=True)
class ChatTokenizer:
    """A Hugging Face tokenizer with the special tokens of Qwen's chat form.

    end_ids: any of them ends a response. control_ids: never typed by users, never sampled (pads, vision marks).
    """

    tokenizer: Any
    end_ids: tuple[int, ...]
    pad_id: int
    control_ids: frozenset[int] = field(default_factory=frozenset)

    @staticmethod
    def load(path: str | Path, end_ids: Sequence[int] | None = None) -> ChatTokenizer:
        """Load from a directory. end_ids: from generation_config.json where the caller has it (default: <|im_end|>)."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(path), local_files_only=True)
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: no tokenizer can be loaded from here ({error}).") from error
        return ChatTokenizer.of(tokenizer, end_ids)

    @staticmethod
    def of(tokenizer: Any, end_ids: Sequence[int] | None = None) -> ChatTokenizer:
        vocabulary = tokenizer.get_vocab()
        missing = [mark for mark in ("<|im_start|>", "<|im_end|>") if mark not in vocabulary]
        if missing:
            raise InputError(f"the tokenizer has no {' or '.join(missing)}; vrjax prompts need Qwen's chat marks.")
        pad = vocabulary.get("<|endoftext|>", vocabulary["<|im_end|>"])
        ends = tuple(end_ids) if end_ids else (vocabulary["<|im_end|>"],)
        special = {token for name, token in vocabulary.items() if name.startswith("<|") and name.endswith("|>")}
        return ChatTokenizer(tokenizer, ends, pad, frozenset(special | set(tokenizer.all_special_ids)))

    def encode(self, text: str) -> list[int]:
        """Ids of text that holds no control tokens. Raises InputError naming the token where it does."""
        ids = self._ids(text)
        for token in ids:
            if token in self.control_ids:
                name = self.tokenizer.convert_ids_to_tokens(token)
                if name not in text:  # an unknown word, not a typed mark
                    continue
                raise InputError(f"the text contains the control token {name}. Take it out: {text[:80]!r}")
        return ids

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def marks(self, text: str) -> list[int]:
        """Ids of the template's own text, control tokens included."""
        return self._ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a response: up to its first end token, without special tokens."""
        ids = list(ids)
        for index, token in enumerate(ids):
            if token in self.end_ids:
                ids = ids[:index]
                break
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def build_prompt(
    chat: ChatTokenizer,
    config: Qwen2_5VLConfig,
    question: str,
    vision: Sequence[Vision] = (),
    *,
    system: str = SYSTEM,
    instruction: str = "",
    name: str = "",
    rule: PositionRule = "released",
    limit: int | None = None,
) -> Prompt:
    """One user turn: videos and images first, then the question and the instruction.

    limit: the model's context in tokens, less the response. Raises InputError for an empty question, control tokens in
    it, or a prompt beyond the limit (a prompt is never cut: ask for fewer frames or pixels).
    """
    where = f"{name}: " if name else ""
    if not question.strip():
        raise InputError(f"{where}the question is empty. Ask something.")
    opening = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>"
    tokens = chat.marks(opening + "user\n" if vision else opening)
    text = question + instruction if vision else "user\n" + question + instruction
    vision_at = []
    for item in vision:
        pad = config.video_token if item.seconds_per_grid is not None else config.image_token
        count = item.grid[0] * item.grid[1] * item.grid[2] // config.vision.merge_size**2
        tokens.append(config.vision_start_token)
        vision_at.append(len(tokens))
        tokens.extend([pad] * count)
        tokens.append(config.vision_end_token)
    trunk = len(tokens)
    try:
        tokens.extend(chat.encode(text))
    except InputError as error:
        raise InputError(f"{where}{error}") from error
    tokens.extend(chat.marks("<|im_end|>\n<|im_start|>assistant\n"))
    if limit is not None and len(tokens) > limit:
        raise InputError(
            f"{where}the prompt has {len(tokens)} tokens ({trunk} before the question) but only {limit} fit the "
            "model's context beside the response. Use fewer frames or a lower max_pixels."
        )
    array = np.asarray(tokens, np.int32)
    positions, following = prompt_positions(
        array, [item.grid for item in vision], [item.seconds_per_grid for item in vision], config, rule
    )
    return Prompt(array, positions, following, tuple(vision), tuple(vision_at), trunk, name)
