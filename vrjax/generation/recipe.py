"""How a checkpoint wants to be asked: which frames, which words. Kept as `vrjax.json` beside its weights.

Training writes it and everything that asks the model reads it, so that sampling and training see the same prompts.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vrjax.errors import CheckpointError
from vrjax.evidence import EVIDENCE_INSTRUCTION
from vrjax.models.qwen2_5_vl import PositionRule
from vrjax.video import FrameOptions

FILE_NAME = "vrjax.json"


@dataclass(frozen=True)
class PromptRecipe:
    """frames: sampling and size; system: system text (None: the chat form's own); instruction: put behind the question;
    position_rule: of mRoPE.
    """

    frames: FrameOptions = field(default_factory=FrameOptions)
    system: str | None = None
    instruction: str = EVIDENCE_INSTRUCTION
    position_rule: PositionRule = "released"

    def write(self, directory: str | Path) -> None:
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        (Path(directory) / FILE_NAME).write_text(text, encoding="utf-8")

    @staticmethod
    def read(directory: str | Path | None) -> PromptRecipe | None:
        """The recipe of a checkpoint; None where it has none (a published one).

        Raises CheckpointError where the file is there but cannot be used.
        """
        if directory is None or not (path := Path(directory) / FILE_NAME).is_file():
            return None
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            return PromptRecipe(**{**raw, "frames": FrameOptions(**raw["frames"])})
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(
                f"{path}: not a prompt recipe ({error}). Take it from the run that trained it."
            ) from error
