"""Options of commands that ask a judge, and the client that they make."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vrjax.errors import InputError

if TYPE_CHECKING:
    from vrjax.llm import ChatClient


@dataclass(frozen=True)
class Judging:
    """Who judges, and where verdicts are kept."""

    judge: str | None = None
    """For moviecore: who judges, openai:MODEL or native:DIR; without one the verdicts in the files are used."""
    base_url: str | None = None
    """Address of the judge's server, if it is not OpenAI's."""
    api_key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds the judge's key."""
    concurrency: int = 8
    """Requests to the judge at once."""
    save_judged: Path | None = None
    """Folder to write the files to, with their verdicts."""
    judged_by: str | None = None
    """Whose verdicts count, where files hold those of several judges."""
    moviechat: Path | None = None
    """Answers of the first file's system to MovieChat-1K, to set beside (table 5 of the paper)."""

    def client(self, replies: Path) -> ChatClient | None:
        """The judge with retries and concurrency; None where none is named.

        replies: folder that keeps what the judge said, so that a run that was stopped goes on. Raises InputError where
        the judge is no model, or lacks a key.
        """
        if self.judge is None:
            return None
        from vrjax.llm import ChatClient, ReplyCache, parse_llm

        local = self.judge.startswith("native:")
        try:
            backend = parse_llm(self.judge, self.base_url, os.environ.get(self.api_key_variable))
        except InputError as error:
            if local or os.environ.get(self.api_key_variable) or self.base_url:
                raise
            raise InputError(f"{error} The key is read from the variable {self.api_key_variable}.") from None
        return ChatClient(
            backend,
            concurrency=self.concurrency,
            timeout_s=None if local else 120.0,
            cache=ReplyCache(replies),
        )
