"""`vrjax-data eg-vqa STAGE`: build EG-VQA, a file a stage, in one working folder.

read        raw.jsonl, raw_removed.jsonl
curate      records.jsonl, removed.jsonl, corrections.jsonl
generate    candidates.jsonl
screen      verdicts.jsonl → screened.jsonl, queue.jsonl, agreement.json
assemble    dataset.jsonl (takes people's decisions)
audit       audit.jsonl, audit.json
split       train.json, test.json, split.json
statistics  statistics.json, statistics.md, report.html
"""

from __future__ import annotations

from typing import Annotated

import tyro

from data_tools.eg_vqa.building_stages import Curate, Generate, Read, Screen
from data_tools.eg_vqa.finishing_stages import Assemble, Audit, SplitStage, Statistics

EgVqa = (
    Annotated[Read, tyro.conf.subcommand("read")]
    | Annotated[Curate, tyro.conf.subcommand("curate")]
    | Annotated[Generate, tyro.conf.subcommand("generate")]
    | Annotated[Screen, tyro.conf.subcommand("screen")]
    | Annotated[Assemble, tyro.conf.subcommand("assemble")]
    | Annotated[Audit, tyro.conf.subcommand("audit")]
    | Annotated[SplitStage, tyro.conf.subcommand("split")]
    | Annotated[Statistics, tyro.conf.subcommand("statistics")]
)
