"""Stages of `vrjax-data eg-vqa` that make the dataset of screened questions: assemble, audit, split, statistics."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from data_tools.eg_vqa.building_stages import Flag
from data_tools.stage_output import print_figures


@dataclass(frozen=True)
class Assemble:
    """Make the dataset of what the judges accepted and what people decided.

    Examples::

        vrjax-data eg-vqa assemble --work eg_vqa --decisions decisions.jsonl
    """

    work: Path
    """Folder of all stages' files."""
    decisions: tuple[Path, ...] = ()
    """People's decisions, as JSON lines {question_id, decision: accept | reject, question?, answer?, evidence?}."""
    json: Flag = False
    """Print the counts as JSON."""

    def run(self) -> int:
        from data_tools.eg_vqa.assembly import Decision, assemble
        from data_tools.stage_files import read_forms, read_rows, record_rows, records_of_stage, write_rows
        from vrjax.errors import InputError

        decided: dict[str, Decision] = {}
        for path in self.decisions:
            for one in read_forms(path, Decision):
                if one.question_id in decided and decided[one.question_id] != one:
                    raise InputError(f"{path}: {one.question_id} is decided twice, differently. Keep one decision.")
                decided[one.question_id] = one
        records = records_of_stage(self.work / "records.jsonl", "curate")
        found, counts = assemble(records, read_rows(self.work / "screened.jsonl", "screen"), decided)
        write_rows({self.work / "dataset.jsonl": record_rows(found)})
        print_figures({"questions": sum(len(one.questions) for one in found), "counts": dict(counts)}, self.json)
        return 0


@dataclass(frozen=True)
class Audit:
    """Draw a balanced sample for people to check, and, with their verdicts, say how much of the dataset is valid.

    Examples::

        vrjax-data eg-vqa audit --work eg_vqa --count 1000
        vrjax-data eg-vqa audit --work eg_vqa --count 1000 --verdicts audited.jsonl
    """

    work: Path
    """Folder of all stages' files."""
    count: int = 1000
    """Questions to draw, balanced over source, duration and type."""
    seed: int = 0
    """Of the draw."""
    verdicts: Path | None = None
    """People's verdicts, as JSON lines {question_id, decision: accept | reject}."""
    json: Flag = False
    """Print the figures as JSON."""

    def run(self) -> int:
        from data_tools.eg_vqa.assembly import Decision
        from data_tools.eg_vqa.audit import audit_result, draw_audit
        from data_tools.stage_files import read_forms, records_of_stage, write_rows
        from vrjax.errors import InputError
        from vrjax.evaluation.official_files import write_whole

        drawn, plan = draw_audit(records_of_stage(self.work / "dataset.jsonl", "assemble"), self.count, self.seed)
        rows = [
            {"question_id": one.question.question_id, "video_id": one.record.video_id,
             "video_path": one.record.video_path, "duration": one.record.duration, "stratum": list(one.stratum),
             "question": one.question.model_dump(mode="json", exclude_unset=True),
             "segments": [segment.model_dump(mode="json") for segment in one.record.metadata.segments]}
            for one in drawn
        ]  # fmt: skip
        write_rows({self.work / "audit.jsonl": rows})
        if self.verdicts is not None:
            strata = {one.question.question_id: one.stratum for one in drawn}
            valid: dict[tuple[str, ...], list[bool]] = {}
            for one in read_forms(self.verdicts, Decision):
                if one.question_id not in strata:
                    raise InputError(f"{self.verdicts}: {one.question_id} was not drawn. Give this sample's verdicts.")
                valid.setdefault(strata[one.question_id], []).append(one.decision == "accept")
            plan["result"] = audit_result(plan, valid)
        write_whole({self.work / "audit.json": json.dumps(plan, indent=1) + "\n"})
        print_figures({name: value for name, value in plan.items() if name != "strata"}, self.json)
        return 0


@dataclass(frozen=True)
class SplitStage:
    """Split by video into train.json and test.json, stratified on source, duration and evidence density.

    Examples::

        vrjax-data eg-vqa split --work eg_vqa --test-share 0.1626
    """

    work: Path
    """Folder of all stages' files."""
    test_share: float = 336 / 2067
    """Share of the videos that are for testing; the paper's by default."""
    test_videos: int | None = None
    """Number of test videos, instead of a share."""
    seed: int = 0
    """Of the draw."""
    json: Flag = False
    """Print the balance as JSON."""

    def run(self) -> int:
        from data_tools.eg_vqa.split import check_split, split_records
        from data_tools.stage_files import record_rows, records_of_stage
        from vrjax.evaluation.official_files import write_whole

        records = records_of_stage(self.work / "dataset.jsonl", "assemble")
        wanted = round(self.test_share * len(records)) if self.test_videos is None else self.test_videos
        split = split_records(records, wanted, self.seed)
        balance = check_split(split)
        contents = {
            self.work / f"{name}.json": json.dumps(record_rows(part), ensure_ascii=False, indent=1) + "\n"
            for name, part in (("train", split.train), ("test", split.test))
        }
        settings = {"seed": self.seed, "edges": asdict(split.strata)}
        write_whole({**contents, self.work / "split.json": json.dumps({**settings, **balance}, indent=1) + "\n"})
        print_figures({name: value for name, value in balance.items() if name != "shares"}, self.json)
        return 0


@dataclass(frozen=True)
class Statistics:
    """The dataset in numbers: tables by source and by split, and plots.

    Reads train.json and test.json where there are any, else the last stage's records.

    Examples::

        vrjax-data eg-vqa statistics --work eg_vqa
        vrjax-data eg-vqa statistics --work out --files train.json test.json
    """

    work: Path
    """Folder of all stages' files."""
    files: tuple[Path, ...] = ()
    """Record files to describe instead, each a split."""
    json: Flag = False
    """Print the tables as JSON."""

    def run(self) -> int:
        from data_tools.eg_vqa import statistics
        from data_tools.stage_files import records_of_stage
        from vrjax.errors import InputError
        from vrjax.evaluation.official_files import write_whole

        files = list(self.files)
        for names in (("train.json", "test.json"), ("dataset.jsonl",), ("records.jsonl",), ("raw.jsonl",)):
            if not files and all((self.work / name).is_file() for name in names):
                files = [self.work / name for name in names]
        if not files:
            raise InputError(f"{self.work}: holds no records. Run the stage `read` first.")
        splits = {path.stem: records_of_stage(path, "") for path in files}
        sources = statistics.source_table([record for records in splits.values() for record in records])
        parts = statistics.split_table(splits)
        found = {"by_source": sources, "by_split": parts}
        text = statistics.markdown("By source", statistics.SOURCE_COLUMNS, sources)
        text += statistics.markdown("By split", statistics.SPLIT_COLUMNS, parts)
        write_whole({
            self.work / "statistics.json": json.dumps(found, indent=1) + "\n", self.work / "statistics.md": text,
        })  # fmt: skip
        statistics.write_page(self.work / "report.html", sources, parts, statistics.plots(splits), [])
        print(json.dumps(found, indent=1) if self.json else text)
        return 0
