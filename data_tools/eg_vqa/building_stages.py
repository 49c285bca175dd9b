"""Stages of `vrjax-data eg-vqa` that make questions: read, curate, generate, screen."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from data_tools.eg_vqa.curation import CurationRules
from data_tools.language_models import CallOptions, ModelOptions
from data_tools.stage_output import print_figures, say

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
        from data_tools.stage_files import read_forms, record_rows, records_of_stage, write_rows
        from vrjax.errors import InputError

        records = records_of_stage(self.work / "raw.jsonl", "read")
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
        from data_tools.stage_files import Journal, records_of_stage, write_rows
        from vrjax.evaluation.official_files import write_whole

        if self.write_prompts is not None:
            write_whole({self.write_prompts: QuestionPrompts().model_dump_json(indent=1) + "\n"})
            return 0
        prompts = load_prompts(self.prompts) if self.prompts is not None else QuestionPrompts()
        records = records_of_stage(self.work / "records.jsonl", "curate")
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
        from data_tools.stage_files import Journal, read_rows, records_of_stage, write_rows
        from vrjax.errors import InputError
        from vrjax.evaluation.official_files import write_whole
        from vrjax.records import Question

        records = {record.video_id: record for record in records_of_stage(self.work / "records.jsonl", "curate")}
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
