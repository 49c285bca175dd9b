"""How the tools reach a language model: the options of a command, as a `ChatClient`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vrjax.errors import InputError

if TYPE_CHECKING:
    from vrjax.llm import Budget, ChatClient, Price


@dataclass(frozen=True)
class ModelOptions:
    """One language model."""

    llm: str | None = None
    """The model, as openai:MODEL (any OpenAI-compatible server) or native:DIR."""
    base_url: str | None = None
    """Address of the server; by default OpenAI's."""
    api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key."""
    prompt_price: float | None = None
    """Price of a million prompt tokens, for estimates and --max-cost."""
    completion_price: float | None = None
    """Price of a million completion tokens."""

    @property
    def price(self) -> Price | None:
        """None without prices. Raises InputError where only one of the two is given."""
        from vrjax.llm import Price

        if self.prompt_price is None and self.completion_price is None:
            return None
        if self.prompt_price is None or self.completion_price is None:
            raise InputError("only one of prompt-price and completion-price is given. Give both, or neither.")
        return Price(self.prompt_price, self.completion_price)


@dataclass(frozen=True)
class CallOptions:
    """How models are called."""

    replies: Path | None = None
    """Folder that keeps every reply, so that none is paid for twice; by default beside the output."""
    concurrency: int = 8
    """Calls at the same time."""
    timeout_s: float = 300.0
    """Seconds for one call."""
    attempts: int = 6
    """Calls of one request before it is given up."""
    max_tokens_spent: int | None = None
    """Stop asking once so many tokens are used."""
    max_cost: float | None = None
    """Stop asking once so much money is spent; needs prices."""

    def client(self, model: ModelOptions, replies: Path, option: str = "--llm") -> ChatClient:
        """A client of the model, with its own budget.

        replies: the folder where `self.replies` names none. option: what names the model on the command line. Raises
        InputError where no model is named, or it cannot be reached as it is described.
        """
        from vrjax.llm import Budget, ChatClient, ReplyCache, Retrying, parse_llm

        if model.llm is None:
            raise InputError(f"no language model is named. Give {option}, as openai:MODEL or native:DIR.")
        try:
            backend = parse_llm(model.llm, model.base_url, os.environ.get(model.api_key_env), timeout_s=self.timeout_s)
        except InputError as error:
            raise InputError(f"{error} The key is read from the variable {model.api_key_env}.") from None
        budget: Budget | None = None
        if self.max_tokens_spent is not None or self.max_cost is not None or model.price is not None:
            budget = Budget(self.max_tokens_spent, self.max_cost, model.price)
        return ChatClient(
            backend,
            concurrency=self.concurrency,
            retrying=Retrying(attempts=self.attempts),
            timeout_s=self.timeout_s,
            cache=ReplyCache(self.replies or replies),
            budget=budget,
        )
