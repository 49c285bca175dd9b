"""`vrjax-data moviecore STAGE`: write MovieCORE, in one working folder.

context     context.jsonl        eight answers of a video model about each clip
annotate    annotations.jsonl    six roles discuss each clip's questions, with transcripts
export      train.json, test.json, single_pass_*.json, captions.json, comparison.json
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from data_tools.language_models import CallOptions, ModelOptions
from data_tools.stage_output import print_figures, say
from vrjax.video import FrameOptions

if TYPE_CHECKING:
    from data_tools.moviecore.clips import Clip

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
FRAME_TOKENS = 256  # of one frame, about, in estimates


@dataclass(frozen=True)
class Clips:
    """Where the clips are described."""

    train: tuple[Path, ...] = ()
    """MovieChat-1K's training clips: HERMES' train.json, or one official file a clip."""
    test: tuple[Path, ...] = ()
    """Its test clips."""
    test_list: Path | None = None
    """Names of the test clips, instead of the files' own splits."""
    limit: int | None = None
    """Only the first so many clips."""

    def read(self) -> list[Clip]:
        from data_tools.moviecore.clips import join_clips, read_clips
        from vrjax.errors import InputError

        parts = [read_clips(path, split) for split in ("train", "test") for path in getattr(self, split)]
        if not parts:
            raise InputError("no clips are given. Name --clips.train, --clips.test, or both.")
        return join_clips(parts, self.test_list)[: self.limit]


@dataclass(frozen=True)
class Context:
    """Put eight questions about each clip to a video model.

    Examples::

        vrjax-data moviecore context --work moviecore --clips.train train.json --clips.test test.json \\
            --videos clips --llm openai:MiniCPM-V-2_6 --base-url http://localhost:8000/v1
        vrjax-data moviecore context --work moviecore --clips.test test.json --videos clips --llm native:MODEL_DIR
    """

    work: Path
    """Folder of all stages' files."""
    videos: Path
    """Folder of the clips' video files."""
    clips: Clips = field(default_factory=Clips)
    frames: FrameOptions = field(default_factory=lambda: FrameOptions(frames=32))
    """Frames that the video model is shown."""
    max_tokens: int = 512
    """Longest answer, in tokens."""
    max_failed_share: float = 0.2
    """Share of answers that fail, above which the stage fails."""
    estimate_only: Flag = False
    """Print the estimate of the cost, and stop."""
    json: Flag = False
    """Print the counts as JSON."""
    model: Annotated[ModelOptions, tyro.conf.arg(name="")] = field(default_factory=ModelOptions)
    calls: Annotated[CallOptions, tyro.conf.arg(name="")] = field(default_factory=CallOptions)

    def run(self) -> int:
        from data_tools.cost_estimate import CostEstimate
        from data_tools.moviecore.clips import find_video
        from data_tools.moviecore.context import CONTEXT_QUESTIONS, ContextTask, ask_context
        from data_tools.paid_work import check_share, work_through
        from data_tools.stage_files import Journal, write_rows
        from vrjax.llm import Usage

        client = self.calls.client(self.model, self.work / "replies")
        tasks: dict[str, ContextTask] = {}
        missing = []
        for clip in self.clips.read():
            video = find_video(self.videos, clip)
            if video is None:
                missing.append(clip.name)
                continue
            for name, question in CONTEXT_QUESTIONS.items():
                task = ContextTask(clip, video, name, question, self.frames, self.max_tokens)
                tasks[task.key(client.name)] = task
        journal = Journal(self.work / "context.journal.jsonl")
        left = [key for key in tasks if key not in journal.rows]
        frames = self.frames.frames or self.frames.max_frames
        usage = Usage(len(left) * (FRAME_TOKENS * frames + 50), len(left) * self.max_tokens // 2)
        price = self.model.price
        told = CostEstimate(len(left), len(tasks) - len(left), usage.prompt_tokens, usage.completion_tokens,
                            None if price is None else price.of(usage))  # fmt: skip
        say(f"{client.name}: {told}")
        if self.estimate_only:
            return 0

        failures = work_through(
            tasks, partial(ask_context, client), journal, [client], 2 * self.calls.concurrency, "answers"
        )
        rows: dict[str, dict[str, Any]] = {}
        for key, task in tasks.items():
            if key in journal.rows:
                row = rows.setdefault(task.clip.name, {"clip": task.clip.name, "model": client.name, "answers": {}})
                row["answers"][task.name] = journal.rows[key]["answer"]
        write_rows({self.work / "context.jsonl": rows.values()})
        whole = sum(len(row["answers"]) == len(CONTEXT_QUESTIONS) for row in rows.values())
        print_figures({
            "clips": len(rows), "complete": whole, "videos_missing": len(missing), "missing": missing[:20],
            "failed": dict(failures.counts), "calls": client.summary,
        }, self.json)  # fmt: skip
        check_share(failures, len(tasks), self.max_failed_share, "answers")
        return 0


@dataclass(frozen=True)
class Annotate:
    """Have six roles write, review and refine questions about each clip; every message is kept.

    Roles, models, prompts, steps and rounds are a JSON file that --write-workflow makes for you to edit. --strong
    writes and reviews, --small is everyone else.

    Examples::

        vrjax-data moviecore annotate --work moviecore --write-workflow workflow.json
        vrjax-data moviecore annotate --work moviecore --clips.train train.json --clips.test test.json \\
            --strong.llm openai:gpt-4o --small.llm openai:gpt-4o-mini --workflow workflow.json
    """

    work: Path
    """Folder of all stages' files."""
    clips: Clips = field(default_factory=Clips)
    workflow: Path | None = None
    """An edited workflow."""
    write_workflow: Path | None = None
    """Write the workflow to this file, and do nothing else."""
    strong: ModelOptions = field(default_factory=ModelOptions)
    """Model of the writer and the meta reviewer."""
    small: ModelOptions = field(default_factory=ModelOptions)
    """Model of the other roles."""
    max_failed_share: float = 0.2
    """Share of clips that fail, above which the stage fails."""
    estimate_only: Flag = False
    """Print the estimate of the cost, and stop."""
    json: Flag = False
    """Print the counts as JSON."""
    calls: Annotated[CallOptions, tyro.conf.arg(name="")] = field(default_factory=CallOptions)

    def run(self) -> int:
        from data_tools.moviecore.context import CONTEXT_QUESTIONS, data_info, hash_of
        from data_tools.moviecore.discussion import discuss
        from data_tools.moviecore.workflow import Workflow, load_workflow
        from data_tools.paid_work import check_share, work_through
        from data_tools.stage_files import Journal, read_rows, write_rows
        from vrjax.evaluation.official_files import write_whole

        if self.write_workflow is not None:
            write_whole({self.write_workflow: Workflow().model_dump_json(indent=1) + "\n"})
            return 0
        workflow = load_workflow(self.workflow) if self.workflow is not None else Workflow()
        context = {row["clip"]: row["answers"] for row in read_rows(self.work / "context.jsonl", "context")}
        clips = self.clips.read()
        ready = [clip for clip in clips if len(context.get(clip.name, ())) == len(CONTEXT_QUESTIONS)]
        chats = {
            name: self.calls.client(getattr(self, name), self.work / "replies", f"--{name}.llm")
            for name in ("strong", "small")
        }
        journal = Journal(self.work / "annotations.journal.jsonl")

        def key(clip: Clip) -> str:
            parts = (
                data_info(clip, context[clip.name]),
                workflow.model_dump_json(),
                *(one.name for one in chats.values()),
            )
            return f"{clip.name} {hash_of(*parts):016x}"

        async def one(clip: Clip) -> dict[str, Any]:
            info = data_info(clip, context[clip.name])
            return {"clip": clip.name, "split": clip.split, "data_info": info, **await discuss(chats, workflow, info)}

        keyed = {key(clip): clip for clip in ready}
        left = [clip for name, clip in keyed.items() if name not in journal.rows]
        for name, client in chats.items():
            say(f"{client.name}: {self._estimate(name, workflow, left, len(ready) - len(left), context)}")
        if self.estimate_only:
            return 0

        failures = work_through(keyed, one, journal, chats.values(), self.calls.concurrency, "clips")
        rows = [journal.rows[name] for name in keyed if name in journal.rows]
        write_rows({self.work / "annotations.jsonl": [{k: row[k] for k in row if k != "key"} for row in rows]})
        repairs = Counter(repair for row in rows for message in row["transcript"] for repair in message["repairs"])
        print_figures({
            "clips": len(clips), "without_context": len(clips) - len(ready), "annotated": len(rows),
            "pairs": sum(len(row["refined"]) for row in rows), "repairs": dict(repairs),
            "failed": dict(failures.counts), "calls": {name: one.summary for name, one in chats.items()},
        }, self.json)  # fmt: skip
        check_share(failures, len(ready), self.max_failed_share, "clips")
        return 0

    def _estimate(self, name: str, workflow: Any, left: list[Clip], kept: int, context: dict[str, Any]) -> Any:
        """Of one model: each step's prompt as long as what it sees, replies of a usual length."""
        from data_tools.cost_estimate import CHARACTERS_PER_TOKEN, CostEstimate
        from data_tools.moviecore.context import data_info
        from data_tools.moviecore.discussion import REPLY_TOKENS
        from vrjax.llm import Usage

        steps = [one for one in workflow.steps if one.reply != "none" and workflow.roles[one.role].model == name]
        prompt = 0
        for clip in left:
            sizes = {"data_info": len(json.dumps(data_info(clip, context[clip.name]))) // CHARACTERS_PER_TOKEN}
            for step in steps:
                seen = [sizes.get(one, REPLY_TOKENS["pairs" if one == "pairs" else "text"]) for one in step.sees]
                prompt += sum(seen) + len(workflow.roles[step.role].prompt) // CHARACTERS_PER_TOKEN
        usage = Usage(prompt, len(left) * sum(REPLY_TOKENS[step.reply] for step in steps))
        price = getattr(self, name).price
        cost = None if price is None else price.of(usage)
        requests = len(left) * len(steps)
        return CostEstimate(requests, kept * len(steps), usage.prompt_tokens, usage.completion_tokens, cost)


@dataclass(frozen=True)
class Export:
    """Write train.json and test.json in MovieCORE's form, the single-pass versions beside them, captions, a comparison.

    Examples::

        vrjax-data moviecore export --work moviecore
        vrjax-data moviecore export --work moviecore --verdicts reviewed/verified.jsonl
        vrjax-data cognitive moviecore/single_pass_test.json moviecore/test.json
    """

    work: Path
    """Folder of all stages' files."""
    verdicts: Path | None = None
    """verified.jsonl of `review export`: pairs and captions that people removed stay out."""
    json: Flag = False
    """Print the counts as JSON."""

    def run(self) -> int:
        from data_tools.moviecore.export import counts, official_files
        from data_tools.stage_files import read_rows
        from vrjax.evaluation.official_files import write_whole

        verdicts = read_rows(self.verdicts) if self.verdicts is not None else []
        removed = {str(row.get("item")): row.get("question") for row in verdicts if row.get("kept") is False}
        files = official_files(read_rows(self.work / "annotations.jsonl", "annotate"), removed)
        contents = {name: json.dumps(content, ensure_ascii=False, indent=1) + "\n" for name, content in files.items()}
        write_whole({self.work / name: text for name, text in contents.items()})
        print_figures(counts(files) | ({"removed_by_people": len(removed)} if verdicts else {}), self.json)
        return 0


MovieCore = (
    Annotated[Context, tyro.conf.subcommand("context")]
    | Annotated[Annotate, tyro.conf.subcommand("annotate")]
    | Annotated[Export, tyro.conf.subcommand("export")]
)
