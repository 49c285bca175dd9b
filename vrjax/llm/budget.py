"""A limit on tokens or money that several clients may share. Running calls finish, new ones are refused."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from vrjax.errors import InputError
from vrjax.llm.chat import ChatError, Usage


class BudgetExceeded(ChatError):
    """The budget is used up; what was answered before stands. Its kind is `budget`."""


@dataclass(frozen=True)
class Price:
    """Money for a million tokens, in the currency of `Budget.max_cost`."""

    prompt_per_million: float
    completion_per_million: float

    def of(self, usage: Usage) -> float:
        prompt = usage.prompt_tokens * self.prompt_per_million
        return (prompt + usage.completion_tokens * self.completion_per_million) / 1e6


class Budget:
    """Counts what was used. Safe between threads.

    max_tokens: prompt and completion tokens together. max_cost: money, by `prices`. The limit may be passed by the
    calls that run when it is reached, at most one a place of the client's concurrency.
    Raises InputError where max_cost has no prices, or a limit is negative.
    """

    def __init__(
        self, max_tokens: int | None = None, max_cost: float | None = None, prices: Price | None = None
    ) -> None:
        if max_cost is not None and prices is None:
            raise InputError(f"max_cost {max_cost:g} needs prices: give the price of prompt and completion tokens.")
        if (max_tokens or 0) < 0 or (max_cost or 0) < 0:
            raise InputError(f"a budget of {max_tokens} tokens, {max_cost} money is negative. Give 0 or more.")
        self.max_tokens, self.max_cost, self.prices = max_tokens, max_cost, prices
        self._spent, self._lock = Usage(), threading.Lock()

    @property
    def spent(self) -> Usage:
        return self._spent

    @property
    def cost(self) -> float | None:
        """Money spent so far; None without prices."""
        return None if self.prices is None else self.prices.of(self._spent)

    def spend(self, usage: Usage) -> None:
        with self._lock:
            self._spent = self._spent + usage

    def check(self) -> None:
        """Raise BudgetExceeded once a limit is reached."""
        tokens, cost = self._spent.total, self.cost
        if self.max_tokens is not None and tokens >= self.max_tokens:
            spent = f"{self.max_tokens} tokens is used up ({tokens} spent)"
        elif self.max_cost is not None and cost is not None and cost >= self.max_cost:
            spent = f"{self.max_cost:g} is used up ({cost:.4g} spent)"
        else:
            return
        raise BudgetExceeded(f"the budget of {spent}. Raise it to go on.", "budget")
