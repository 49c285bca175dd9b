"""Prompts: texts, images and videos to token ids, positions and places for vision features. Host side.

A prompt is a conversation in the model's chat form (see `chat_forms`). Everything up to its last text, such as system
text and video, is the *trunk*, which all questions about a video and all samples of a prompt share; the rest is the
*branch*. In Qwen's form:

    <|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n<|im_start|>user\\n      trunk
    <|vision_start|><|video_pad|>…<|vision_end|>                                          trunk
    QUESTION<|im_end|>\\n<|im_start|>assistant\\n                                          branch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int, UInt8

from vrjax.errors import InputError
from vrjax.generation.chat_forms import QWEN, QWEN_MARKS, Mark, Turn
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.models.language_model import LanguageModelConfig
from vrjax.models.qwen2_5_vl import PositionRule, Qwen2_5VLConfig, prompt_positions
from vrjax.models.qwen2_5_vl.layout import Grid

if TYPE_CHECKING:
    from vrjax.video import FramePlan

TEXT_ONLY = "the model reads text alone. Leave images and videos out, or ask a video model."


@dataclass(frozen=True)
class Vision:
    """One video, or one image, as the model reads it.

    patches: uint8, t·h·w rows in merge-block order; grid: (t, h, w) in patches;
    seconds_per_grid: seconds that a temporal patch spans, None for an image; key: names the content, for caches;
    together: names the images of one plan, which are encoded at once ("": alone).
    """

    patches: UInt8[np.ndarray, "S V"]
    grid: Grid
    seconds_per_grid: float | None
    key: str
    together: str = ""

    @staticmethod
    def of_plan(plan: FramePlan, patches: UInt8[np.ndarray, "S V"]) -> list[Vision]:
        """A video's patches as one video, or as one image a frame where the plan says `frames_as_images`."""
        if not plan.options.frames_as_images:
            return [Vision(patches, plan.grid, plan.seconds_per_grid, plan.hash)]
        items, start = [], 0
        for number, grid in enumerate(plan.grids):
            count = grid[0] * grid[1] * grid[2]
            items.append(Vision(patches[start : start + count], grid, None, f"{plan.hash}/{number}", plan.hash))
            start += count
        return items


@dataclass(frozen=True)
class Prompt:
    """Token ids with what the model needs beside them.

    tokens: [S] with pads expanded; positions: [A, S], A = 3 for video models, else 1; next_position: of the token that
    follows; vision: the images and videos in order; vision_at: index of the first pad of each; trunk: how many tokens
    the questions about one video share; name: for messages and random addresses.
    """

    tokens: Int[np.ndarray, "S"]
    positions: Int[np.ndarray, "A S"]
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


def build_conversation(
    chat: ChatTokenizer,
    config: LanguageModelConfig,
    turns: Sequence[Turn],
    *,
    name: str = "",
    rule: PositionRule = "released",
    limit: int | None = None,
) -> Prompt:
    """Tokens and positions of a conversation that the assistant is to go on with. Pieces of turns: str and Vision.

    The form's default system text comes first where it has one and the first turn is not a system one. limit: the
    model's context in tokens, less the response. Raises InputError for a text with control tokens, a system turn that
    is not the first, vision in front of a model that reads text alone, a chat template of no known form, or a prompt
    beyond the limit.
    """
    where = f"{name}: " if name else ""
    try:
        prompt = _conversation(chat, config, turns, name, rule)
    except InputError as error:
        raise InputError(f"{where}{error}") from error
    if limit is not None and len(prompt) > limit:
        raise InputError(
            f"{where}the conversation has {len(prompt)} tokens but only {limit} fit the model's context beside the "
            "response. Use fewer frames or shorter texts."
        )
    return prompt


def build_prompt(
    chat: ChatTokenizer,
    config: LanguageModelConfig,
    question: str,
    vision: Sequence[Vision] = (),
    *,
    system: str | None = None,
    instruction: str = "",
    name: str = "",
    rule: PositionRule = "released",
    limit: int | None = None,
) -> Prompt:
    """One user turn: videos and images first, then the question and the instruction.

    system: None for the form's default. limit: the model's context in tokens, less the response. Raises InputError for
    an empty question, control tokens in it, or a prompt beyond the limit (a prompt is never cut: ask for fewer frames
    or pixels).
    """
    where = f"{name}: " if name else ""
    if not question.strip():
        raise InputError(f"{where}the question is empty. Ask something.")
    turns = [Turn("user", (*vision, question + instruction))]
    if system is not None:
        turns.insert(0, Turn("system", (system,)))
    prompt = build_conversation(chat, config, turns, name=name, rule=rule)
    if limit is not None and len(prompt) > limit:
        raise InputError(
            f"{where}the prompt has {len(prompt)} tokens ({prompt.trunk} before the question) but only {limit} fit the "
            "model's context beside the response. "
            + ("Use fewer frames or a lower max_pixels." if vision else "Ask with fewer words.")
        )
    return prompt


def _conversation(
    chat: ChatTokenizer, config: LanguageModelConfig, turns: Sequence[Turn], name: str, rule: PositionRule
) -> Prompt:
    if chat.form is None:
        raise InputError(
            "the tokenizer's chat template writes a form that is not known here (known: Qwen's, ChatML, Llama 3's). "
            "Remove the template to ask in plain text."
        )
    seeing = config if isinstance(config, Qwen2_5VLConfig) else None
    if seeing is not None and chat.form != QWEN:
        raise InputError(
            f"a Qwen2.5-VL is asked in Qwen's chat form, but its tokenizer lacks {', '.join(QWEN_MARKS)}. "
            "Use the tokenizer that it was trained with."
        )
    pieces, reply = chat.form.lay_out(turns)
    tokens: list[int] = []
    vision: list[Vision] = []
    vision_at: list[int] = []
    trunk = 0
    for number, piece in enumerate((*pieces, *reply)):
        if number == len(pieces) - isinstance(pieces[-1], str):
            trunk = len(tokens)
        if isinstance(piece, Mark):
            tokens.extend(chat.marks(piece.text))
        elif isinstance(piece, str):
            tokens.extend(chat.encode(piece))
        elif seeing is None:
            raise InputError(TEXT_ONLY)
        else:
            vision.append(piece)
            vision_at.append(len(tokens) + 1)
            pad = seeing.image_token if piece.seconds_per_grid is None else seeing.video_token
            count = piece.grid[0] * piece.grid[1] * piece.grid[2] // seeing.vision.merge_size**2
            tokens.extend([seeing.vision_start_token, *[pad] * count, seeing.vision_end_token])
    array = np.asarray(tokens, np.int32)
    if seeing is None:
        return Prompt(array, np.arange(len(array), dtype=np.int32)[None], len(array), trunk=trunk, name=name)
    positions, following = prompt_positions(
        array, [item.grid for item in vision], [item.seconds_per_grid for item in vision], seeing, rule
    )
    return Prompt(array, positions, following, tuple(vision), tuple(vision_at), trunk, name)
