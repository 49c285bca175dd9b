"""The `vrjax` command: one subcommand per file in `vrjax.commands`.

Exit codes: 0 done, 1 the run failed or its quality gate did not hold, 2 bad usage or input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import tyro

from vrjax.commands.ace import Ace
from vrjax.commands.ace_dataset import AceDataset
from vrjax.commands.agent import Agent
from vrjax.commands.agent_traces import SUBCOMMANDS, BestSubset, BuildCriticExamples, ReplayTraces, SftData, TracePage
from vrjax.commands.answer import Answer
from vrjax.commands.buckets import Buckets
from vrjax.commands.check_videos import CheckVideos
from vrjax.commands.compare import Compare
from vrjax.commands.convert_gguf import ConvertGguf
from vrjax.commands.evaluate import Evaluate
from vrjax.commands.export import Export
from vrjax.commands.plan import PlanRun
from vrjax.commands.report import Report
from vrjax.commands.score import Score
from vrjax.commands.train import Train
from vrjax.commands.transcribe import Transcribe
from vrjax.errors import VrjaxError

Commands = (
    Annotated[Answer, tyro.conf.subcommand("answer")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Buckets, tyro.conf.subcommand("buckets")]
    | Annotated[PlanRun, tyro.conf.subcommand("plan")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Ace, tyro.conf.subcommand("ace")]
    | Annotated[AceDataset, tyro.conf.subcommand("ace-dataset")]
    | Annotated[Score, tyro.conf.subcommand("score")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[ConvertGguf, tyro.conf.subcommand("convert-gguf")]
    | Annotated[Transcribe, tyro.conf.subcommand("transcribe")]
    | Annotated[CheckVideos, tyro.conf.subcommand("check-videos")]
    | Annotated[Agent, tyro.conf.subcommand("agent")]
    | Annotated[BuildCriticExamples, tyro.conf.subcommand("agent-build-critic-examples")]
    | Annotated[BestSubset, tyro.conf.subcommand("agent-best-subset")]
    | Annotated[ReplayTraces, tyro.conf.subcommand("agent-replay")]
    | Annotated[SftData, tyro.conf.subcommand("agent-sft-data")]
    | Annotated[TracePage, tyro.conf.subcommand("agent-page")]
)


def execute(run: Callable[[], int]) -> int:
    """Run a command; an error that is meant for people is printed as its one sentence."""
    try:
        return run()
    except VrjaxError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `vrjax` script."""
    words, fields = list(sys.argv[1:] if arguments is None else arguments), []
    if words[:1] == ["train"]:  # what follows the experiment's file changes its fields, not the command's options
        own, fields = Train.split(words[1:])
        words = ["train", *own]
    elif words[:1] in (["plan"], ["buckets"]):
        own, fields = (PlanRun if words[0] == "plan" else Buckets).split(words[1:])
        words = [words[0], *own]
    elif words[:1] == ["evaluate"]:  # --benchmark.FIELD belongs to the benchmark
        own, fields = Evaluate.split(words[1:])
        if "--help" in fields:
            sys.exit(execute(lambda: Evaluate.show_options(own) or 0))
        words = ["evaluate", *own]
    if words[:1] == ["agent"] and words[1:2] and words[1] in SUBCOMMANDS:
        words = [f"agent-{words[1]}", *words[2:]]
    command = tyro.cli(
        Commands,  # pyright: ignore[reportArgumentType]
        prog="vrjax",
        description="Video language models that show their evidence, in JAX.",
        args=words,
    )
    with_fields = isinstance(command, Train | Evaluate | PlanRun | Buckets)
    sys.exit(execute(partial(command.run, fields) if with_fields else command.run))


if __name__ == "__main__":
    main()
