"""`vrjax buckets`: the sizes that a run's rows are padded to, fitted to its data before anything is loaded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from vrjax.errors import InputError


@dataclass(frozen=True)
class Buckets:
    """Survey a run's data, and show the buckets that its rows fall into and what each number of them would pad.

    Each bucket costs a compilation of every program that reads rows. The survey is kept in the run directory: `vrjax
    train` goes on from it, and `vrjax plan` plans its buckets. No weights are read. Fields of the configuration can be
    changed as for `vrjax train`.

    Examples::

        vrjax buckets experiments/shapes_sft.py --batch.max-programs 4
    """

    experiment: tyro.conf.Positional[Path]
    """Python file that sets `config`."""

    @classmethod
    def split(cls, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
        """The experiment's file, and what changes its fields."""
        if arguments and not arguments[0].startswith("-"):
            return [arguments[0]], list(arguments[1:])
        return list(arguments), []

    def run(self, rest: Sequence[str] = ()) -> int:
        """Survey and print. rest: fields to change, `--field.path value …`."""
        from vrjax.generation.chat_tokenizer import ChatTokenizer
        from vrjax.planning.model_source import model_config
        from vrjax.run_directory import RunDirectory
        from vrjax.training.buckets import fit_buckets
        from vrjax.training.config import FreshModel, SftConfig
        from vrjax.training.experiment import load_experiment, override
        from vrjax.training.policy.config import GrpoConfig
        from vrjax.training.policy.preparation import survey_questions
        from vrjax.training.preparation import survey_rows
        from vrjax.training.survey import NOTHING
        from vrjax.video import ReaderPool

        config = override(load_experiment(self.experiment), rest, f"vrjax buckets {self.experiment}")
        if not isinstance(config, SftConfig | GrpoConfig):
            raise InputError(f"{self.experiment}: there are no rows of a {type(config).__name__}.")
        model, source = model_config(config.model), config.model
        chat = ChatTokenizer.load(source.tokenizer if isinstance(source, FreshModel) else source.path)
        run = RunDirectory(config.run_dir)
        pool = ReaderPool(config.input.threads, config.input.time_limit_s)

        def say(line: str) -> None:
            print(line, file=sys.stderr)

        try:
            if isinstance(config, SftConfig):
                corpora = [part for part in survey_rows(config, chat, model, run, pool, say) if part is not None]
                most, padding = config.batch.max_programs, config.batch.max_padding
            else:
                corpora = [survey_questions(config, chat, model, run, pool, say)]
                most, padding = config.max_programs, 0.2
        finally:
            pool.close()
        sizes = [size for corpus in corpora for size in corpus.sizes if size != NOTHING]
        _show(sizes, fit_buckets(sizes, most, padding), most)
        return 0


def _show(sizes: Sequence[Any], buckets: Sequence[Any], most: int) -> None:
    from rich.console import Console
    from rich.table import Table

    from vrjax.training.buckets import choose_bucket, fit_buckets, padding_share

    console = Console()
    chosen = [choose_bucket(size, buckets) for size in sizes]
    table = Table("tokens", "predicted", "frames", "patches", "windows", "ragged", "rows", "padding")
    for number, bucket in enumerate(buckets):
        here = [size for size, choice in zip(sizes, chosen, strict=True) if choice == number]
        share = padding_share(here, [bucket] * len(here))
        cells = (bucket.length, bucket.targets, bucket.frames, bucket.frame_patches, bucket.windows, bucket.ragged)
        table.add_row(*map(str, cells), str(len(here)), f"{share:.1%}")
    console.print(table)
    for count in range(1, most + 1):
        fitted = fit_buckets(sizes, count, 0.0)
        if len(fitted) == count:
            share = padding_share(sizes, [fitted[choose_bucket(size, fitted)] for size in sizes])
            console.print(f"{count} bucket(s): {share:.1%} of the tokens computed would be padding")
    share = padding_share(sizes, [buckets[choice] for choice in chosen])
    console.print(f"{len(sizes)} rows in {len(buckets)} bucket(s), {share:.1%} padding")
