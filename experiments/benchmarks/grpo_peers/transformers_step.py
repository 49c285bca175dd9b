"""The same GRPO step with transformers and torch, as video-RL repositories write it.

`generate` on the prompt and its pixels repeated G times; then a forward pass of G rows of prompt and response, pixels
repeated once more, the vision tower without gradients; log-probs, policy loss, backward pass, clipping, AdamW.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class TransformersStep:
    """`run` makes one step and notes its seconds as (rollout, update) in `taken`. inputs: of G rows.

    lean: only the logits of the responses are asked for, and nothing is recomputed: what a careful user of transformers
    would do. Otherwise as R1-V, Video-R1 and VideoChat-R1 do: logits of all tokens, a log-softmax row by row, layers
    recomputed in the backward pass (`--gradient_checkpointing true` in their scripts). AdamW is fused in both.
    """

    model: Any
    inputs: dict[str, Any]
    tokens: int
    attention: str = "sdpa"
    lean: bool = False
    taken: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        import torch

        self.model.set_attn_implementation(self.attention)
        if not self.lean:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model.model.visual.requires_grad_(False)
        self.trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-6, weight_decay=1e-2, fused=True)

    def run(self) -> None:
        import torch

        torch.manual_seed(len(self.taken))
        start = time.perf_counter()
        prompt = self.inputs["input_ids"].shape[1]
        self.model.eval()  # or layers would be recomputed here too, and nothing be cached
        with torch.no_grad():
            rows = self.model.generate(
                **self.inputs, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                min_new_tokens=self.tokens, max_new_tokens=self.tokens,
            )  # fmt: skip
        assert rows.shape[1] == prompt + self.tokens, rows.shape
        middle = time.perf_counter()

        self.model.train()  # recomputes where it was told to; there is no dropout
        rewards = torch.arange(len(rows), dtype=torch.float32)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        kinds = self.inputs["mm_token_type_ids"]
        whole = {
            **self.inputs,
            "input_ids": rows,
            "attention_mask": torch.ones_like(rows),
            "mm_token_type_ids": torch.nn.functional.pad(kinds, (0, self.tokens)),
        }
        if self.lean:
            logits = self.model(**whole, logits_to_keep=self.tokens + 1, use_cache=False).logits[:, :-1].float()
            chosen = logits.log_softmax(-1).gather(-1, rows[:, prompt:, None])[..., 0]
        else:
            logits = self.model(**whole, use_cache=False).logits[:, :-1]
            by_row = [
                row.log_softmax(-1).gather(-1, ids[1:, None])[:, 0] for row, ids in zip(logits, rows, strict=True)
            ]
            chosen = torch.stack(by_row)[:, prompt - 1 :]
        ratio = (chosen - chosen.detach()).exp()
        gain = torch.minimum(ratio * advantages[:, None], ratio.clamp(0.8, 1.2) * advantages[:, None])
        (-gain.mean(1).mean()).backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.taken.append((middle - start, time.perf_counter() - middle))
