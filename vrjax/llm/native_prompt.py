"""A conversation of several turns as one prompt, in Qwen's chat form: `generation.prompts` for more than one question.

<|im_start|>system\\n…<|im_end|>\\n<|im_start|>user\\n…<|im_end|>\\n
<|im_start|>assistant\\n…<|im_end|>\\n<|im_start|>user\\n…<|im_end|>\\n<|im_start|>assistant\\n
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vrjax.errors import InputError
from vrjax.generation.prompts import SYSTEM, ChatTokenizer, Prompt, Vision
from vrjax.llm.chat import Role
from vrjax.models.qwen2_5_vl import PositionRule, Qwen2_5VLConfig, prompt_positions


@dataclass(frozen=True)
class Turn:
    """One turn: texts, images and videos in the order in which they are shown."""

    role: Role
    pieces: tuple[str | Vision, ...]


def build_chat_prompt(
    chat: ChatTokenizer,
    config: Qwen2_5VLConfig,
    turns: Sequence[Turn],
    *,
    name: str = "",
    rule: PositionRule = "released",
    limit: int | None = None,
) -> Prompt:
    """Tokens and positions of a conversation that the assistant is to go on with.

    Qwen's default system text comes first where the first turn is not a system one. limit: the model's context in
    tokens, less the response. Raises InputError for a text with control tokens, a system turn that is not the first,
    or a prompt beyond the limit.
    """
    where = f"{name}: " if name else ""
    if not turns or turns[0].role != "system":
        turns = [Turn("system", (SYSTEM,)), *turns]
    if any(turn.role == "system" for turn in turns[1:]):
        raise InputError(f"{where}a system message is not the first one. Put it first.")
    tokens: list[int] = []
    vision: list[Vision] = []
    vision_at: list[int] = []
    waiting = ""  # text up to the next mark is encoded in one go, as the whole conversation would be

    def flush() -> None:
        nonlocal waiting
        if waiting:
            tokens.extend(chat.encode(waiting))
        waiting = ""

    try:
        for turn in turns:
            flush()
            tokens.extend(chat.marks("<|im_start|>"))
            waiting = f"{turn.role}\n"
            for piece in turn.pieces:
                if isinstance(piece, str):
                    waiting += piece
                    continue
                flush()
                pad = config.image_token if piece.seconds_per_grid is None else config.video_token
                count = piece.grid[0] * piece.grid[1] * piece.grid[2] // config.vision.merge_size**2
                vision.append(piece)
                vision_at.append(len(tokens) + 1)
                tokens.extend([config.vision_start_token, *[pad] * count, config.vision_end_token])
            flush()
            tokens.extend(chat.marks("<|im_end|>"))
            waiting = "\n"
        flush()
    except InputError as error:
        raise InputError(f"{where}{error}") from error
    tokens.extend(chat.marks("<|im_start|>assistant\n"))
    if limit is not None and len(tokens) > limit:
        raise InputError(
            f"{where}the conversation has {len(tokens)} tokens but only {limit} fit the model's context beside the "
            "response. Use fewer frames or shorter texts."
        )
    array = np.asarray(tokens, np.int32)
    positions, following = prompt_positions(
        array, [item.grid for item in vision], [item.seconds_per_grid for item in vision], config, rule
    )
    return Prompt(array, positions, following, tuple(vision), tuple(vision_at), name=name)
