"""A tokenizer with its chat form: which tokens end a response, pad, and belong to the form alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vrjax.errors import InputError
from vrjax.generation.chat_forms import QWEN, ChatForm, form_of

PADS = ("<|endoftext|>", "<|finetune_right_pad_id|>")


@dataclass(frozen=True)
class ChatTokenizer:
    """A Hugging Face tokenizer with what the model's chat form needs.

    end_ids: any of them ends a response. form: None where the tokenizer's chat template is of no form that is known
    here; single texts can be encoded all the same. control_ids: never typed by users, never sampled (pads, vision
    marks).
    """

    tokenizer: Any
    end_ids: tuple[int, ...]
    pad_id: int
    form: ChatForm | None
    control_ids: frozenset[int] = field(default_factory=frozenset)

    @staticmethod
    def load(path: str | Path, end_ids: Sequence[int] | None = None) -> ChatTokenizer:
        """Load from a directory. end_ids: from generation_config.json where the caller has it (default: the form's end,
        such as <|im_end|>; of plain text, the tokenizer's own end token).
        """
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(path), local_files_only=True)
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: no tokenizer can be loaded from here ({error}).") from error
        return ChatTokenizer.of(tokenizer, end_ids)

    @staticmethod
    def of(tokenizer: Any, end_ids: Sequence[int] | None = None) -> ChatTokenizer:
        """Raises InputError where nothing says which token ends a response."""
        vocabulary, form = tokenizer.get_vocab(), form_of(tokenizer)
        end = vocabulary[form.end] if form is not None and form.end else tokenizer.eos_token_id
        if not end_ids and end is None:
            raise InputError(
                "the tokenizer has no end token. Name one as eos_token in tokenizer_config.json, or as eos_token_id in "
                "generation_config.json."
            )
        ends = tuple(end_ids) if end_ids else (end,)
        own = [tokenizer.pad_token_id] if form is not QWEN else []
        pads = [*own, *(vocabulary.get(name) for name in PADS), end, ends[0]]
        pad = next(token for token in pads if token is not None)
        special = {token for name, token in vocabulary.items() if name.startswith("<|") and name.endswith("|>")}
        special |= {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
        return ChatTokenizer(tokenizer, ends, pad, form, frozenset(special | set(tokenizer.all_special_ids)))

    def encode(self, text: str) -> list[int]:
        """Ids of text that holds no control tokens. Raises InputError naming the token where it does."""
        ids = self.marks(text)
        for token in ids:
            if token in self.control_ids:
                name = self.tokenizer.convert_ids_to_tokens(token)
                if name not in text:  # an unknown word, not a typed mark
                    continue
                raise InputError(f"the text contains the control token {name}. Take it out: {text[:80]!r}")
        return ids

    def marks(self, text: str) -> list[int]:
        """Ids of the form's own text, control tokens included."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a response: up to its first end token, without special tokens."""
        ids = list(ids)
        for index, token in enumerate(ids):
            if token in self.end_ids:
                ids = ids[:index]
                break
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
