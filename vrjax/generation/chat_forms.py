"""Chat forms: the text around the turns of a conversation, as a model was trained to read it.

    Qwen, ChatML    <|im_start|>user\\nHello<|im_end|>\\n<|im_start|>assistant\\n
    Llama 3         <|begin_of_text|><|start_header_id|>user<|end_header_id|>\\n\\nHello<|eot_id|>
                    <|start_header_id|>assistant<|end_header_id|>\\n\\n                       (in one line)
    plain           Hello

A tokenizer's own chat template says which form it has, what a conversation without a system turn gets as one, and what
stands before every system text. The template is read once, by rendering it; the form must then write the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from vrjax.errors import InputError

Role = Literal["system", "user", "assistant"]

# Of Qwen2.5-VL's published template.
SYSTEM = "You are a helpful assistant."
# Llama 3.1 and later put the day's date before every system text. A prompt must not change from day to day, so the
# date is the one that their template writes where it has no clock.
DATE = "26 Jul 2024"


@dataclass(frozen=True)
class Turn:
    """One turn: texts in the order in which they are shown, and images and videos between them."""

    role: Role
    pieces: tuple[Any, ...]


@dataclass(frozen=True)
class Mark:
    """Text of the form itself, with special tokens that no user may type."""

    text: str


@dataclass(frozen=True)
class ChatForm:
    """How turns are written down.

    begin: before all; opening: special token before a role's name ("": roles are not shown); named: special token
    behind it; lead: text before a turn's own; end: special token behind that; between: text before the next turn.
    trims: white space around a turn's text is dropped. system: text of the system turn that a conversation without one
    gets, None for no such turn; header: before every system text.
    """

    name: str
    begin: str = ""
    opening: str = ""
    named: str = ""
    lead: str = ""
    end: str = ""
    between: str = ""
    trims: bool = False
    system: str | None = None
    header: str = ""

    def marks(self) -> list[str]:
        """The special tokens that a vocabulary must have."""
        return [mark for mark in (self.opening, self.named, self.end) if mark]

    def lay_out(self, turns: Sequence[Turn]) -> tuple[list[Any], list[Any]]:
        """The conversation in pieces: marks, texts, and what is no text, as it was given.

        Texts that follow each other are one. Returns the pieces up to and with the last turn's own, and those that
        close it and open the reply. Raises InputError for a system turn that is not the first, or no turn at all.
        """
        if not turns:
            raise InputError("the conversation has no turn. Add a user turn.")
        if turns[0].role != "system" and self.system is not None:
            turns = [Turn("system", (self.system,)), *turns]
        if any(turn.role == "system" for turn in turns[1:]):
            raise InputError("a system message is not the first one. Put it first.")
        pieces: list[Any] = [Mark(self.begin)] if self.begin else []
        for number, turn in enumerate(turns):
            if number:
                self._close(pieces)
            self._open(pieces, turn.role)
            if turn.role == "system":
                _append(pieces, self.header)
            for piece in self._trimmed(turn.pieces):
                _append(pieces, piece)
        reply: list[Any] = []
        if self.opening:
            self._close(reply)
            self._open(reply, "assistant")
        return pieces, reply

    def _open(self, pieces: list[Any], role: str) -> None:
        if self.opening:
            _append(pieces, Mark(self.opening))
            _append(pieces, role)
            if self.named:
                _append(pieces, Mark(self.named))
        _append(pieces, self.lead)

    def _close(self, pieces: list[Any]) -> None:
        if self.end:
            _append(pieces, Mark(self.end))
        _append(pieces, self.between)

    def _trimmed(self, pieces: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.trims and all(isinstance(piece, str) for piece in pieces):
            return ("".join(pieces).strip(),)
        return pieces

    def written(self, turns: Sequence[Turn]) -> str:
        """The conversation as text; all turns hold texts alone."""
        pieces, reply = self.lay_out(turns)
        return "".join(piece.text if isinstance(piece, Mark) else piece for piece in (*pieces, *reply))


def _append(pieces: list[Any], piece: Any) -> None:
    if piece == "":
        return
    if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
        pieces[-1] += piece
    else:
        pieces.append(piece)


CHATML = ChatForm("ChatML", opening="<|im_start|>", lead="\n", end="<|im_end|>", between="\n")
QWEN = replace(CHATML, name="Qwen", system=SYSTEM)
LLAMA3 = ChatForm(
    "Llama 3",
    opening="<|start_header_id|>",
    named="<|end_header_id|>",
    lead="\n\n",
    end="<|eot_id|>",
    trims=True,
)
PLAIN = ChatForm("plain", between="\n\n")
# What tells a tokenizer of Qwen's video models, with or without a template (the form is theirs in any case).
QWEN_MARKS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>")

_USER, _SYSTEM, _ASSISTANT = "First question", "Be brief", "An answer"
_PROBES: tuple[tuple[tuple[Role, str], ...], ...] = (
    (("user", _USER),),
    (("system", _SYSTEM), ("user", _USER)),
    (("system", f" {_SYSTEM}\n"), ("user", f"\n {_USER} "), ("assistant", f" {_ASSISTANT}\n"), ("user", "Second")),
)


def form_of(tokenizer: Any) -> ChatForm | None:
    """The chat form of a Hugging Face tokenizer; None where its template writes a form that is not known here.

    Plain text where it has no template (base models), with the token first that the tokenizer puts there itself.
    """
    vocabulary = tokenizer.get_vocab()
    if all(mark in vocabulary for mark in QWEN_MARKS):
        return QWEN
    if not tokenizer.chat_template:
        return replace(PLAIN, begin=_first_tokens(tokenizer))
    for form in (CHATML, LLAMA3):
        if all(mark in vocabulary for mark in form.marks()):
            fitted = _fitted(form, tokenizer)
            if fitted is not None:
                return fitted
    return None


def _fitted(form: ChatForm, tokenizer: Any) -> ChatForm | None:
    """The form with the template's own beginning and system texts; None where it does not write what the form does."""
    try:
        rendered = [_rendered(tokenizer, probe) for probe in _PROBES]
    except Exception:  # templates are programs: they raise what they like
        return None
    begin, found, _ = rendered[0].partition(form.opening)
    form = replace(form, begin=begin)
    default, given = (_system_text(form, text) for text in rendered[:2])
    if not found or given is None or not given.endswith(_SYSTEM):
        return None
    header = given.removesuffix(_SYSTEM)
    if default is not None:
        form = replace(form, header=header, system=default.removeprefix(header))
    elif header:
        return None
    wanted = [form.written([Turn(role, (text,)) for role, text in probe]) for probe in _PROBES]
    return form if wanted == rendered else None


def _rendered(tokenizer: Any, probe: Sequence[tuple[Role, str]]) -> str:
    messages = [{"role": role, "content": text} for role, text in probe]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, date_string=DATE)


def _system_text(form: ChatForm, text: str) -> str | None:
    start = f"{form.begin}{form.opening}system{form.named}{form.lead}"
    return text[len(start) :].split(form.end)[0] if text.startswith(start) else None


def _first_tokens(tokenizer: Any) -> str:
    bare, whole = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True))
    count = next((at for at in range(len(whole)) if whole[at : at + len(bare)] == bare), 0)
    return "".join(tokenizer.convert_ids_to_tokens(whole[:count]))
