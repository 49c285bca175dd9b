"""What a batch of requests will cost, said before the first one is sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vrjax.llm import ChatRequest, Price

CHARACTERS_PER_TOKEN = 4  # of English, about


@dataclass(frozen=True)
class CostEstimate:
    """Requests that are not answered yet; tokens are estimated from characters, replies by a usual length."""

    requests: int = 0
    kept: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None

    def __str__(self) -> str:
        tokens = f"about {self.prompt_tokens:,} prompt and {self.completion_tokens:,} completion tokens"
        money = "no prices given" if self.cost is None else f"about {self.cost:,.4g} in the prices' currency"
        return f"{self.requests:,} requests ({self.kept:,} more are answered already), {tokens}, {money}"

    def __add__(self, other: CostEstimate) -> CostEstimate:
        costs = [one.cost for one in (self, other) if one.requests]
        return CostEstimate(
            self.requests + other.requests,
            self.kept + other.kept,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            None if any(cost is None for cost in costs) else sum(cost for cost in costs if cost is not None),
        )


def estimate(
    requests: Iterable[ChatRequest], reply_tokens: int, price: Price | None = None, kept: int = 0
) -> CostEstimate:
    """The estimate for requests of text; their schemas count as sent text. kept: answered by an earlier run."""
    import json

    from vrjax.llm import Usage

    count = characters = 0
    for request in requests:
        count += 1
        characters += sum(len(message.text) for message in request.messages)
        characters += len(json.dumps(request.schema)) if request.schema else 0
    prompt, completion = -(-characters // CHARACTERS_PER_TOKEN), count * reply_tokens
    cost = None if price is None else price.of(Usage(prompt, completion))
    return CostEstimate(count, kept, prompt, completion, cost)
