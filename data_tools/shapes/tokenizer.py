"""A small word tokenizer with Qwen2.5-VL's special tokens, for models trained from scratch on one world of text.

Nothing is lost: a token is a word *with the space before it*, a mark, a newline, a tag, or a clock time, so tokens
joined as they are give the text back. Each MM:SS is one token, because a small model learns to copy a time long before
it learns to spell one. What the vocabulary lacks becomes `<unk>`, which `unknown_count` counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
UNKNOWN = "<unk>"
TAGS = tuple(f"<{slash}{name}>" for name in ("evidence", "think", "answer") for slash in ("", "/"))
MARKS = ("\n", " ", "Time:", ", Des:", "-", ",", ".", "?", ":")
TIMES = tuple(f"00:{second:02d}" for second in range(60))

# Tried in this order at each place; the last two lines take whatever is left one character at a time.
PIECES = (
    r"</?(?:evidence|think|answer)>"
    r"|Time:|, Des:"
    r"|\d\d:\d\d"
    r"| ?[A-Za-z]+"
    r"|[0-9]+"
    r"|[^\sA-Za-z0-9]"
    r"|\s"
)

CHAT_TEMPLATE = """\
{%- if not messages or messages[0]['role'] != 'system' -%}
{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['content'] is string -%}
{{- message['content'] -}}
{%- else -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'video' -%}
{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
{%- elif part['type'] == 'image' -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- else -%}
{{- part['text'] -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}"""
_TEMPLATE_WORDS = ("system", "user", "assistant", "You are a helpful assistant.")


def build_tokenizer(texts: Iterable[str], out_dir: str | Path) -> PreTrainedTokenizerFast:
    """Make a tokenizer whose words are those of `texts`, write it to `out_dir`, and return it.

    `out_dir` is then a directory that `transformers.AutoTokenizer.from_pretrained` loads; the padding token is
    `<|endoftext|>` and the end-of-sequence token `<|im_end|>`. Token ids do not depend on the order of `texts`.
    """
    split = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    pieces = {piece for text in (*texts, *_TEMPLATE_WORDS) for piece, _ in split.pre_tokenize_str(_plain(text))}
    entries = [*SPECIAL_TOKENS, UNKNOWN, *TAGS, *MARKS, *TIMES]
    entries += sorted(pieces - set(entries))
    core = Tokenizer(models.WordLevel({entry: number for number, entry in enumerate(entries)}, unk_token=UNKNOWN))
    core.pre_tokenizer = split
    core.decoder = decoders.Fuse()
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (*SPECIAL_TOKENS, UNKNOWN)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token=UNKNOWN,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=list(SPECIAL_TOKENS[1:]),
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )
    tokenizer.save_pretrained(str(out_dir))
    return tokenizer


def unknown_count(token_ids: Iterable[int], tokenizer: PreTrainedTokenizerFast) -> int:
    """How many of `token_ids` stand for text that the vocabulary lacks."""
    return sum(token == tokenizer.unk_token_id for token in token_ids)


def _plain(text: str) -> str:
    for token in (*SPECIAL_TOKENS, UNKNOWN):
        text = text.replace(token, "\n")
    return text
