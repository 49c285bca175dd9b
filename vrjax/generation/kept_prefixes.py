"""Prefixes kept between requests, in blocks: a prompt that begins as an earlier one did prefills only what is new.

    earlier   | block | block | block | rest
    later     | block | block | new new new …

A token's keys and values depend on nothing but the tokens, positions and images up to it, so a block is right for any
prompt that begins with the same ones. Blocks are named by a digest of all that (as in vLLM's automatic prefix caching),
so prompts share what they share: an agent's own history, but also the system text of all agents with the same tools.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from vrjax.generation.prompts import Prompt

BLOCK = 16
Block = tuple[np.ndarray, np.ndarray]


def block_names(prompt: Prompt) -> list[bytes]:
    """A name for each whole block of a prompt: a digest of everything from its first token to the block's last."""
    digest, names = hashlib.sha256(), []
    tokens, positions = prompt.tokens.astype(np.int64), prompt.positions.astype(np.int64)
    starts = dict(zip(prompt.vision_at, (item.key for item in prompt.vision), strict=True))
    for first in range(0, len(prompt) - len(prompt) % BLOCK, BLOCK):
        here = slice(first, first + BLOCK)
        digest.update(tokens[here].tobytes() + positions[:, here].tobytes())
        for at in range(first, first + BLOCK):
            if at in starts:
                digest.update(f"{at} {starts[at]}\n".encode())
        names.append(digest.digest())
    return names


@dataclass
class KeptPrefixes:
    """Keys [L, K, E, BLOCK] and values [L, K, BLOCK, E] by block, in host memory, at most `most_bytes` of them.

    The least recently used go first, and of one prompt the last. reused: tokens that were not prefilled; dropped:
    blocks that made room.
    """

    most_bytes: int
    reused: int = 0
    dropped: int = 0
    bytes: int = 0
    _blocks: OrderedDict[bytes, Block] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, name: bytes) -> bool:
        return name in self._blocks

    def leading(self, names: Sequence[bytes]) -> int:
        """How many of the first blocks are kept."""
        return next((number for number, name in enumerate(names) if name not in self._blocks), len(names))

    def take(
        self, names: Sequence[Sequence[bytes]], places: int
    ) -> tuple[Float[np.ndarray, "L B K E P"], Float[np.ndarray, "L B K P E"]]:
        """Keys and values of the blocks of B rows, each padded to `places`. At least one block is named."""
        some = self._blocks[next(name for row in names for name in row)]
        (layers, heads, size, _), rows = some[0].shape, len(names)
        keys = np.zeros((layers, rows, heads, size, places), some[0].dtype)
        values = np.zeros((layers, rows, heads, places, size), some[1].dtype)
        for row, wanted in enumerate(names):
            for number, name in enumerate(wanted):
                here = slice(number * BLOCK, (number + 1) * BLOCK)
                keys[:, row, :, :, here], values[:, row, :, here] = self._blocks[name]
        return keys, values

    def keep(self, name: bytes, keys: np.ndarray, values: np.ndarray) -> None:
        self._blocks[name] = (keys, values)
        self.bytes += keys.nbytes + values.nbytes

    def touch(self, names: Sequence[bytes]) -> None:
        """These blocks of one prompt were used now, the first ones last; then whatever is too much is dropped."""
        for name in reversed(names):
            if name in self._blocks:
                self._blocks.move_to_end(name)
        while self.bytes > self.most_bytes:
            _, (keys, values) = self._blocks.popitem(last=False)
            self.bytes -= keys.nbytes + values.nbytes
            self.dropped += 1

    def forget(self) -> None:
        """Drop all: the weights have changed."""
        self._blocks.clear()
        self.bytes = 0
