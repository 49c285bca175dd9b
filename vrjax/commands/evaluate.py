"""`vrjax evaluate`: a model, an endpoint, or files of predictions on a benchmark."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from vrjax.commands.agent_options import AgentOptions, ModeName
from vrjax.commands.devices import Devices
from vrjax.errors import InputError
from vrjax.video import FrameOptions

if TYPE_CHECKING:
    from vrjax.evaluation.benchmark import Benchmark, Tools
    from vrjax.evaluation.native_subject import NativeSubject
    from vrjax.evaluation.runner import EvaluationOptions
    from vrjax.evaluation.subject import Subject
    from vrjax.llm import ChatClient
    from vrjax.loading import LoadedModel

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
OPTION = "--benchmark."


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a model, an endpoint, or files of predictions by a benchmark's own rules.

    Each answer is on disk before the next is waited for; started again, an evaluation goes on where it was cut off, and
    refuses to go on with other settings. With neither --model nor --llm the answers that are in --out are scored again,
    those of all shards together. Options of the benchmark itself are given as `--benchmark.FIELD VALUE`
    (`--benchmark.help` lists them).

    Examples::

        vrjax evaluate eg_vqa --data eg_vqa/test.json --videos eg_vqa --model runs/demo/model --out runs/eval
        vrjax evaluate eg_vqa --data test.json --out runs/eval --llm openai:qwen --base-url http://localhost:8000/v1
        vrjax evaluate eg_vqa --data test.json --out runs/eval --predictions results.json
        vrjax evaluate eg_vqa --data test.json --out runs/eval --model DIR --benchmark.condition question_only
        vrjax evaluate eg_vqa --data test.json --out runs/eval --model DIR --shard 3/8
        vrjax evaluate eg_vqa --data val.json --out runs/watch --watch runs/sft/checkpoints
        vrjax evaluate eg_vqa --data val.json --out runs/72b --model DIR --devices.tensor 4 --devices.data 2
        vrjax evaluate my_bench.py --data questions.json --out runs/mine --model DIR
        vrjax evaluate neptune --data neptune --out runs/agent --llm native:DIR --agent critic --agent-options.fps 2
    """

    benchmark: tyro.conf.Positional[str]
    """Name of a benchmark, or a Python file that defines one."""
    data: Path
    """Its questions: a folder or file in the official form."""
    out: Path | None = None
    """Folder for answers, scores and the page; only --predictions can do without one."""
    videos: Path | None = None
    """Folder of the videos; by default that of --data."""
    model: str | None = None
    """Model directory, Hugging Face id, run directory (its best checkpoint) or one checkpoint of a run."""
    llm: str | None = None
    """Model behind an OpenAI-compatible endpoint, as openai:MODEL; with --agent also native:DIR."""
    agent: ModeName | None = None
    """Answer by an agent with this model, in one of the modes of `vrjax agent`; its traces are kept in --out."""
    agent_options: AgentOptions = field(default_factory=AgentOptions)
    """What the agent is made of."""
    transcripts: Path | None = None
    """Folder of transcripts for the agent, named as the videos."""
    base_url: str | None = None
    """Address of the endpoint; by default OpenAI's."""
    api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the endpoint's key."""
    predictions: tuple[Path, ...] = ()
    """Score a file in the official form, without a model. Several files are annotators' and are averaged."""
    watch: Path | None = None
    """Evaluate each new checkpoint of this run (RUN/checkpoints) once, until its training has ended."""
    name: str | None = None
    """What tables call the system; by default the model's name."""
    limit: int | None = None
    """Only the first so many questions."""
    shard: str | None = None
    """Only this share of the videos, as i/n. Without it, and without a model, all shares are scored together."""
    judge: str | None = None
    """Judge of answers, as openai:MODEL or native:DIR. Verdicts are kept in OUT/judgements."""
    judge_base_url: str | None = None
    """Address of the judge's endpoint; by default OpenAI's."""
    judge_api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the judge's key."""
    human_labels: Path | None = None
    """People's labels of the same answers ({id: fully | partially | incorrect}), to validate the judge with."""
    similarity: str = "BAAI/bge-m3"
    """Sentence model that compares descriptions (directory or Hugging Face id), or `tokens` for word overlap."""
    cache_dir: Path | None = None
    """Where sentence embeddings are kept; by default `vrjax` in the user's cache folder."""
    wording: Literal["benchmark", "checkpoint"] = "benchmark"
    """How --model is asked: in the benchmark's words, or with the instruction that the checkpoint was trained on."""
    temperature: float = 0.0
    """0 always takes the likeliest token."""
    top_p: float = 1.0
    """Draw from the likeliest tokens that hold this much probability."""
    max_tokens: int = 1024
    """Longest answer, in tokens."""
    seed: int = 0
    """Of the draws."""
    concurrency: int = 8
    """Calls to an endpoint at the same time."""
    timeout_s: float = 300.0
    """Seconds for one call to an endpoint."""
    max_failed_share: float = 0.2
    """Share of questions without an answer above which the evaluation stops."""
    report_frames: int = 48
    """Items that the page shows frames of."""
    metric: str | None = None
    """What --watch ranks checkpoints by; by default the benchmark's headline."""
    poll_s: float = 10.0
    """Seconds between two looks of --watch."""
    patience_s: float = 0.0
    """Seconds without a new checkpoint after which --watch leaves; 0: it stays until training has ended."""
    json: Flag = False
    """Print JSON instead of tables."""
    no_progress: Flag = False
    """Show no progress."""
    frames: FrameOptions = field(default_factory=FrameOptions)
    """Frames that the model is shown; by default the checkpoint's own, else the benchmark's."""
    devices: Devices = field(default_factory=Devices)
    """Devices that hold the model of --model or --watch; by default the first."""

    @classmethod
    def split(cls, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """The command's own arguments, and those of the benchmark, without their `benchmark.`."""
        own: list[str] = []
        options: list[str] = []
        into = own
        for word in words:
            if word.startswith(OPTION):
                into = options
                word = "--" + word.removeprefix(OPTION)
            elif word.startswith("--"):
                into = own
            into.append(word)
        return own, options

    @classmethod
    def show_options(cls, words: Sequence[str]) -> None:
        """Print the options of the benchmark that is named first, and end the program."""
        from vrjax.evaluation.own_benchmark import find_benchmark, make_benchmark

        if not words or words[0].startswith("-"):
            raise InputError("--benchmark.help stands behind a benchmark's name: vrjax evaluate NAME --benchmark.help")
        make_benchmark(find_benchmark(words[0]), ["--help"])

    def run(self, options: Sequence[str] = ()) -> int:
        """Evaluate, print, and return the exit code. options: of the benchmark, `--field value …`."""
        from vrjax.evaluation.own_benchmark import find_benchmark, make_benchmark

        self._check()
        benchmark = make_benchmark(find_benchmark(self.benchmark), options)
        tools = self._tools(benchmark)
        if self.predictions:
            return self._score_files(benchmark, tools)
        if self.watch is not None:
            return self._watch(benchmark, tools)
        from vrjax.evaluation.runner import run

        subject = None
        if self.model is not None or self.llm is not None:
            make = self._native if self.model is not None else self._endpoint if self.agent is None else self._agent
            subject = partial(make, benchmark)
        done = run(benchmark, subject, self._options(), tools)
        if done.score is not None:
            self._show(json.loads((done.folder / "scores.json").read_text(encoding="utf-8")))
        for note in done.notes:
            _say(note)
        if done.score is not None:
            _say(f"{done.folder / 'report.html'}: written.")
        return 0

    def _check(self) -> None:
        ways = {"--model": self.model, "--llm": self.llm, "--predictions": self.predictions, "--watch": self.watch}
        given = [name for name, value in ways.items() if value]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} are given. Choose one.")
        if self.out is None and given != ["--predictions"]:
            raise InputError("--out is missing: name a folder for the answers.")
        if self.shard is not None and given not in (["--model"], ["--llm"]):
            raise InputError("--shard is for --model and --llm. Leave it out.")
        if self.agent is None and (self.agent_options != AgentOptions() or self.transcripts is not None):
            raise InputError("--agent-options and --transcripts are for --agent. Name one of its modes.")
        if self.agent is not None and given != ["--llm"]:
            raise InputError("--agent needs --llm, the model that it asks (openai:MODEL or native:DIR).")
        if self.devices != Devices() and given not in (["--model"], ["--watch"]):
            raise InputError("--devices is for --model and --watch. Leave it out.")
        if self.metric is not None and self.watch is None:
            raise InputError("--metric is what --watch ranks checkpoints by. Leave it out.")

    def _options(self) -> EvaluationOptions:
        from vrjax.evaluation.runner import EvaluationOptions
        from vrjax.evaluation.shards import Shard

        assert self.out is not None
        return EvaluationOptions(
            data=self.data,
            out=self.out,
            videos=self.videos,
            limit=self.limit,
            shard=None if self.shard is None else Shard.parse(self.shard),
            max_failed_share=self.max_failed_share,
            report_frames=self.report_frames,
            human_labels=self.human_labels,
            progress=not self.no_progress,
        )

    def _tools(self, benchmark: Benchmark) -> Tools:
        from vrjax.evaluation.benchmark import Tools
        from vrjax.evidence import make_similarity
        from vrjax.llm import ReplyCache

        similarity = None
        if benchmark.compared:
            similarity = make_similarity(self.similarity, self.cache_dir or _default_cache_dir())
        if self.judge is None:
            return Tools(similarity=similarity)
        cache = None if self.out is None else ReplyCache(self.out / "judgements")
        key = os.environ.get(self.judge_api_key_env)
        return Tools(judge=self._client(self.judge, self.judge_base_url, key, cache), similarity=similarity)

    def _client(self, spec: str, base_url: str | None, key: str | None, cache: Any = None) -> ChatClient:
        from vrjax.llm import ChatClient, parse_llm

        backend = parse_llm(spec, base_url, key, timeout_s=self.timeout_s)
        if spec.startswith("native:"):  # its requests wait for whole batches
            return ChatClient(backend, concurrency=64, timeout_s=None, cache=cache)
        return ChatClient(backend, concurrency=self.concurrency, timeout_s=self.timeout_s, cache=cache)

    @property
    def _frames(self) -> FrameOptions | None:
        return None if self.frames == FrameOptions() else self.frames

    def _native(self, benchmark: Benchmark) -> Subject:
        assert self.model is not None
        model, step = self.devices.load_with_step(self.model)
        label = self.model if step is None else f"{_run_name(Path(self.model))} step {step}"
        return self._native_subject(benchmark, model, self.name or label)

    def _native_subject(self, benchmark: Benchmark, model: LoadedModel, label: str) -> NativeSubject:
        from vrjax.evaluation.native_subject import NativeSubject
        from vrjax.generation.sampling import SamplingOptions

        sampling = SamplingOptions(max_tokens=self.max_tokens, temperature=self.temperature, top_p=self.top_p)
        subject = NativeSubject(
            model, label, benchmark, frames=self._frames, wording=self.wording, sampling=sampling, seed=self.seed
        )
        if subject.trained_otherwise:
            _say(f"{label}: was trained with an instruction of its own; --wording checkpoint asks with that.")
        return subject

    def _endpoint(self, benchmark: Benchmark) -> Subject:
        from vrjax.evaluation.endpoint_subject import EndpointSubject

        assert self.llm is not None
        client = self._client(self.llm, self.base_url, os.environ.get(self.api_key_env))
        return EndpointSubject(
            client,
            self.llm,
            benchmark,
            name=self.name,
            frames=self._frames,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            seed=self.seed,
        )

    def _agent(self, benchmark: Benchmark) -> Subject:
        from vrjax.commands.agent_subject import AgentSubject
        from vrjax.evaluation.shards import Shard

        assert self.llm is not None
        assert self.agent is not None
        assert self.out is not None
        benchmark.admit(transcript=self.transcripts is not None)
        options = self.agent_options
        clients = options.clients(self.llm, self.base_url, self.api_key_env, self.out / "replies", self.concurrency)
        return AgentSubject(
            options.make(self.agent, self.llm, clients, self.seed),
            list(clients.values()),
            {
                "agent_model": self.llm,
                "tool_model": options.tool_llm or self.llm,
                "critic_model": options.critic_llm or self.llm,
            },
            self.out,
            name=self.name,
            kind=options.task,
            transcripts=self.transcripts,
            shard=Shard.of_process() if self.shard is None else Shard.parse(self.shard),
        )

    def _score_files(self, benchmark: Benchmark, tools: Tools) -> int:
        from vrjax.evaluation.result_files import score_row
        from vrjax.evaluation.submissions import score_submissions

        score = score_submissions(
            benchmark,
            self.data,
            self.predictions,
            tools,
            out=self.out,
            videos=self.videos,
            name=self.name,
            limit=self.limit,
            human_labels=self.human_labels,
            report_frames=self.report_frames if self.videos is not None else 0,
            progress=not self.no_progress,
        )
        if self.out is None:
            summary = score_row(benchmark, self.name or self.predictions[0].stem, score)
        else:
            summary = json.loads((self.out / "scores.json").read_text(encoding="utf-8"))
        self._show(summary)
        return 0

    def _watch(self, benchmark: Benchmark, tools: Tools) -> int:
        from vrjax.evaluation.watch import watch

        assert self.watch is not None
        found = watch(
            benchmark,
            self.watch,
            self._options(),
            tools,
            lambda model, label: self._native_subject(benchmark, model, label),
            mesh=self.devices.mesh(),
            metric=self.metric,
            poll_s=self.poll_s,
            patience_s=self.patience_s,
            say=_say,
        )
        if self.json:
            print(json.dumps(found, indent=1))
        return 0

    def _show(self, summary: Mapping[str, Any]) -> None:
        if self.json:
            print(json.dumps(summary, indent=1))
            return
        from rich.console import Console

        from vrjax.evaluation.score_tables import score_tables

        console = Console()
        for table in score_tables(summary):
            console.print(table)


def _run_name(path: Path) -> str:
    """The name of a run, from its directory, its checkpoints or one of them."""
    path = path.absolute()
    for place in (path, path.parent, path.parent.parent):
        if (place / "checkpoints").is_dir():
            return place.name
    return path.name


def _default_cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vrjax"


def _say(message: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)
