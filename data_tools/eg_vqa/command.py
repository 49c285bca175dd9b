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

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from data_tools.eg_vqa.curation import CurationRules
from data_tools.language_models import CallOptions, ModelOptions
from data_tools.stage_output import print_figures, say

if TYPE_CHECKING:
    from vrjax.records import VideoRecord

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass(frozen=True)
class Read:
    """Read the source files into unified records. Every video becomes a record or a named removal.

    Examples::

        vrjax-data eg-vqa read --work eg_vqa --activitynet val_1.json val_2.json --youcook2 yc2_val.json
        vrjax-data eg-vqa read --work eg_vqa --hirest-val all_data_val.json --hirest-test all_data_test.json \\
            --hirest-ground-truth formatted_moment_evaluation_gt.json
    """

    work: Path
    """Folder of all stages' files."""
    activitynet: tuple[Path, ...] = ()
    """ActivityNet Captions, a file an annotator (val_1.json val_2.json)."""
    use: Literal["first", "second", "most_segments", "all"] = "first"
    """Whose segments are used where there are two annotators; all annotations are kept in any case."""
    youcook2: Path | None = None
    """YouCook2, official or PDVC's form."""
    youcook2_subset: str = "validation"
    """Subset of the official file."""
    hirest_val: Path | None = None
    """HiREST validation."""
    hirest_test: Path | None = None
    """HiREST test; needs --hirest-ground-truth."""
    hirest_ground_truth: Path | None = None
    """Formatted step labels of the test split."""
    json: Flag = False
    """Print the counts as JSON."""

    def run(self) -> int:
        from data_tools.eg_vqa import sources
        from data_tools.stage_files import record_rows, write_rows
        from vrjax.errors import InputError

        found = []
        if self.activitynet:
            found.append(sources.read_activitynet(self.activitynet, self.use))
        if self.youcook2 is not None:
            found.append(sources.read_youcook2(self.youcook2, self.youcook2_subset))
        if self.hirest_val is not None:
            found.append(sources.read_hirest(self.hirest_val, split="val"))
        if self.hirest_test is not None:
            if self.hirest_ground_truth is None:
                raise InputError(
                    f"{self.hirest_test}: its own steps are placeholders. Give --hirest-ground-truth, the formatted "
                    "step labels of the test split."
                )
            found.append(sources.read_hirest(self.hirest_test, self.hirest_ground_truth, split="test"))
        if not found:
            raise InputError("no source is given. Name at least one of --activitynet, --youcook2, --hirest-val.")
        whole = sources.join_sources(found)
        write_rows({
            self.work / "raw.jsonl": record_rows(whole.records), self.work / "raw_removed.jsonl": whole.removed,
        })  # fmt: skip
        by_source = Counter(one.data_source for one in whole.records)
        removed = Counter(f"{one['source']}: {one['reason']}" for one in whole.removed)
        print_figures({"records": len(whole.records), "removed": len(whole.removed), "by_source": dict(by_source),
                "removed_by_reason": dict(removed)}, self.json)  # fmt: skip
        return 0


@dataclass(frozen=True)
class Curate:
    """Put segments right and leave videos out, each change with its rule and each removal with its reason.

    Examples::

        vrjax-data eg-vqa curate --work eg_vqa --rules.min-events 3
        vrjax-data eg-vqa curate --work eg_vqa --videos videos --edits segment_edits.jsonl
    """

    work: Path
    """Folder of all stages' files."""
    rules: CurationRules = field(default_factory=CurationRules)
    videos: Path | None = None
    """Folder of the videos: those that are missing or cannot be decoded are left out."""
    edits: Path | None = None
    """People's corrections of segments, as JSON lines {video_id, segment, timestamp?, description?, drop?, editor?}."""
    json: Flag = False
    """Print the counts as JSON."""

    def run(self) -> int:
        from data_tools.eg_vqa.curation import SegmentEdit, curate, unreadable_videos
        from data_tools.stage_files import read_forms, record_rows, write_rows
        from vrjax.errors import InputError

        records = _records(self.work / "raw.jsonl", "read")
        edits: dict[str, list[SegmentEdit]] = {}
        known = {record.video_id: len(record.metadata.segments) for record in records}
        for edit in read_forms(self.edits, SegmentEdit) if self.edits is not None else []:
            if not 0 <= edit.segment < known.get(edit.video_id, 0):
                raise InputError(f"{self.edits}: {edit.video_id} has no segment {edit.segment}. Correct the edit.")
            edits.setdefault(edit.video_id, []).append(edit)
        unreadable = unreadable_videos(records, self.videos) if self.videos is not None else {}
        found = curate(records, self.rules, edits, unreadable)
        write_rows({
            self.work / "records.jsonl": record_rows(found.records),
            self.work / "removed.jsonl": found.removed,
            self.work / "corrections.jsonl": found.corrections,
        })  # fmt: skip
        print_figures({
            "read": len(records),
            "records": len(found.records),
            "by_source": dict(Counter(one.data_source for one in found.records)),
            "removed_by_reason": dict(Counter(f"{one['source']}: {one['reason']}" for one in found.removed)),
            "corrections": dict(Counter(one["rule"] for one in found.corrections)),
        }, self.json)  # fmt: skip
        return 0


@dataclass(frozen=True)
class Generate:
    """Write questions of four kinds by a language model, a request a video and kind.

    With --held-out N only N videos are asked about, into held_out.jsonl, to try prompts on; the prompts are a JSON file
    that `--write-prompts` makes for you to edit.

    Examples::

        vrjax-data eg-vqa generate --work eg_vqa --write-prompts prompts.json
        vrjax-data eg-vqa generate --work eg_vqa --llm openai:gpt-4o --held-out 20 --prompts prompts.json
        vrjax-data eg-vqa generate --work eg_vqa --llm openai:gpt-4o --prompt-price 2.5 --completion-price 10
    """

    work: Path
    """Folder of all stages' files."""
    per_kind: int = 2
    """Questions of a kind a video, at most."""
    kinds: tuple[Literal["descriptive", "temporal", "causal", "counterfactual"], ...] = (
        "descriptive", "temporal", "causal", "counterfactual",
    )  # fmt: skip
    """Kinds to ask for."""
    prompts: Path | None = None
    """Edited prompts."""
    write_prompts: Path | None = None
    """Write the prompts to this file, and do nothing else."""
    held_out: int | None = None
    """Ask about so many videos only."""
    seed: int = 0
    """Of the choice of held-out videos."""
    max_failed_share: float = 0.2
    """Share of requests without a usable reply above which the stage fails."""
    estimate_only: Flag = False
    """Print the estimate of the cost, and stop."""
    json: Flag = False
    """Print the counts as JSON."""
    model: Annotated[ModelOptions, tyro.conf.arg(name="")] = field(default_factory=ModelOptions)
    calls: Annotated[CallOptions, tyro.conf.arg(name="")] = field(default_factory=CallOptions)

    def run(self) -> int:
        from data_tools.cost_estimate import estimate
        from data_tools.eg_vqa.questions import (
            REPLY_TOKENS,
            QuestionPrompts,
            WritingTask,
            held_out,
            load_prompts,
            write_questions,
        )  # fmt: skip
        from data_tools.paid_work import check_share, work_through
        from data_tools.stage_files import Journal, write_rows
        from vrjax.evaluation.official_files import write_whole

        if self.write_prompts is not None:
            write_whole({self.write_prompts: QuestionPrompts().model_dump_json(indent=1) + "\n"})
            return 0
        prompts = load_prompts(self.prompts) if self.prompts is not None else QuestionPrompts()
        records = _records(self.work / "records.jsonl", "curate")
        if self.held_out is not None:
            records = held_out(records, self.held_out, self.seed)
        client = self.calls.client(self.model, self.work / "replies")
        tasks = {
            task.key(client.name): task
            for record in records
            for kind in self.kinds
            for task in [WritingTask(record, kind, self.per_kind, prompts)]
        }
        journal = Journal(self.work / "candidates.journal.jsonl")
        new = [one.request for key, one in tasks.items() if key not in journal.rows and not client.kept(one.request)]
        say(f"{client.name}: {estimate(new, REPLY_TOKENS, self.model.price, len(tasks) - len(new))}")
        if self.estimate_only:
            return 0
        failures = work_through(
            tasks, partial(write_questions, client), journal, [client], 2 * self.calls.concurrency, "questions"
        )
        rows = [journal.rows[key] for key in tasks if key in journal.rows]
        name = "candidates.jsonl" if self.held_out is None else "held_out.jsonl"
        write_rows({self.work / name: [{key: row[key] for key in row if key != "key"} for row in rows]})
        questions = [question for row in rows for question in row["questions"]]
        print_figures({
            "videos": len(records), "requests": len(tasks), "questions": len(questions),
            "by_type": dict(Counter(one["type"] for one in questions)),
            "repeated_and_dropped": sum(row["dropped"] for row in rows),
            "failed": dict(failures.counts), "calls": client.summary,
        }, self.json)  # fmt: skip
        check_share(failures, len(tasks), self.max_failed_share, "requests")
        return 0


@dataclass(frozen=True)
class Screen:
    """Have two judges rate every candidate; where they agree they decide, the rest waits for people in queue.jsonl.

    Examples::

        vrjax-data eg-vqa screen --work eg_vqa --first.llm openai:deepseek-chat --first.base-url https://…/v1 \\
            --second.llm openai:gemini-2.5-flash --second.base-url https://…/v1
    """

    work: Path
    """Folder of all stages' files."""
    first: ModelOptions = field(default_factory=ModelOptions)
    """The one judge."""
    second: ModelOptions = field(default_factory=ModelOptions)
    """The other, independent one."""
    accept_at: int = 4
    """Least rating (1 to 5) of each criterion that a judge accepts."""
    max_failed_share: float = 0.2
    """Share of verdicts that a judge fails to give above which the stage fails; what was judged is kept."""
    estimate_only: Flag = False
    """Print the estimate of the cost, and stop."""
    json: Flag = False
    """Print the counts as JSON."""
    calls: Annotated[CallOptions, tyro.conf.arg(name="")] = field(default_factory=CallOptions)

    def run(self) -> int:
        from data_tools.cost_estimate import estimate
        from data_tools.eg_vqa import screening
        from data_tools.paid_work import check_share, work_through
        from data_tools.stage_files import Journal, read_rows, write_rows
        from vrjax.errors import InputError
        from vrjax.evaluation.official_files import write_whole
        from vrjax.records import Question

        records = {record.video_id: record for record in _records(self.work / "records.jsonl", "curate")}
        tasks = []
        for row in read_rows(self.work / "candidates.jsonl", "generate"):
            if row["video_id"] not in records:
                raise InputError(f"{self.work}: {row['video_id']} was curated away. Run the stage `generate` again.")
            questions = [Question.model_validate(one) for one in row["questions"]]
            tasks += [screening.ScreeningTask(records[row["video_id"]], one) for one in questions]
        judges = {"first": self.first, "second": self.second}
        clients = {
            name: self.calls.client(model, self.work / "replies", f"--{name}.llm") for name, model in judges.items()
        }
        if clients["first"].name == clients["second"].name:
            raise InputError("both judges are the same model, which is no second opinion. Name two.")
        journal = Journal(self.work / "verdicts.jsonl")
        pairs = {task.key(client.name): (client, task) for task in tasks for client in clients.values()}
        for name, client in clients.items():
            new = [
                task.request
                for key, (judge, task) in pairs.items()
                if judge is client and key not in journal.rows and not client.kept(task.request)
            ]
            told = estimate(new, screening.REPLY_TOKENS, judges[name].price, len(tasks) - len(new))
            say(f"{client.name}: {told}")
        if self.estimate_only:
            return 0
        failures = work_through(
            pairs, lambda pair: screening.rate(*pair), journal, clients.values(), 4 * self.calls.concurrency, "verdicts"
        )
        rows, both = [], []
        for task in tasks:
            verdicts = [journal.rows.get(task.key(client.name)) for client in clients.values()]
            decision, why = screening.decide(verdicts[0], verdicts[1], self.accept_at)
            if verdicts[0] is not None and verdicts[1] is not None:
                both.append((verdicts[0], verdicts[1]))
            shown = [one and {name: one[name] for name in ("judge", "ratings", "reason")} for one in verdicts]
            rows.append({
                "question_id": task.question.question_id, "video_id": task.record.video_id,
                "video_path": task.record.video_path, "duration": task.record.duration,
                "data_source": task.record.data_source, "type": task.question.type, "decision": decision, "why": why,
                "question": task.question.model_dump(mode="json", exclude_unset=True), "verdicts": shown,
            })  # fmt: skip
        queue = [
            {**row, "segments": [one.model_dump(mode="json") for one in records[row["video_id"]].metadata.segments]}
            for row in rows
            if row["decision"] == "queued"
        ]
        table = screening.agreement_table(both, self.accept_at)
        write_rows({self.work / "screened.jsonl": rows, self.work / "queue.jsonl": queue})
        write_whole({self.work / "agreement.json": json.dumps(table, indent=1) + "\n"})
        print_figures({
            "questions": len(rows), "decisions": screening.tally(rows), "agreement": table,
            "failed": dict(failures.counts), "calls": {name: client.summary for name, client in clients.items()},
        }, self.json)  # fmt: skip
        check_share(failures, 2 * len(tasks), self.max_failed_share, "verdicts")
        return 0


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
        from data_tools.stage_files import read_forms, read_rows, record_rows, write_rows
        from vrjax.errors import InputError

        decided: dict[str, Decision] = {}
        for path in self.decisions:
            for one in read_forms(path, Decision):
                if one.question_id in decided and decided[one.question_id] != one:
                    raise InputError(f"{path}: {one.question_id} is decided twice, differently. Keep one decision.")
                decided[one.question_id] = one
        records = _records(self.work / "records.jsonl", "curate")
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
        from data_tools.stage_files import read_forms, write_rows
        from vrjax.errors import InputError
        from vrjax.evaluation.official_files import write_whole

        drawn, plan = draw_audit(_records(self.work / "dataset.jsonl", "assemble"), self.count, self.seed)
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
        from vrjax.evaluation.official_files import write_whole

        records = _records(self.work / "dataset.jsonl", "assemble")
        wanted = round(self.test_share * len(records)) if self.test_videos is None else self.test_videos
        split = split_records(records, wanted, self.seed)
        balance = check_split(split)
        contents = {
            self.work / f"{name}.json": json.dumps(_dumped(part), ensure_ascii=False, indent=1) + "\n"
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
        from vrjax.errors import InputError
        from vrjax.evaluation.official_files import write_whole

        files = list(self.files)
        for names in (("train.json", "test.json"), ("dataset.jsonl",), ("records.jsonl",), ("raw.jsonl",)):
            if not files and all((self.work / name).is_file() for name in names):
                files = [self.work / name for name in names]
        if not files:
            raise InputError(f"{self.work}: holds no records. Run the stage `read` first.")
        splits = {path.stem: _records(path, "") for path in files}
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


def _records(path: Path, made_by: str) -> list[VideoRecord]:
    from vrjax.errors import InputError
    from vrjax.records import load_records

    if made_by and not path.is_file():
        raise InputError(f"{path}: is not there. Run the stage `{made_by}` first.")
    return load_records(path)


def _dumped(records: list[VideoRecord]) -> list[dict[str, Any]]:
    from data_tools.stage_files import record_rows

    return record_rows(records)
