"""`vrjax check-videos`: which video files will fail, and why."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Annotated

import tyro

from vrjax.errors import InputError


@dataclasses.dataclass(frozen=True)
class CheckVideos:
    """List which video files will fail, and why, before a run finds out.

    Each file is opened in a process that is killed at the time limit; its packets are counted, and its first, middle
    and last frames decoded. Exit code 0: all fine; 1: some will fail; 2: bad usage.

    Examples::

      vrjax check-videos clips/
      vrjax check-videos a.mp4 b.mkv --json
      vrjax check-videos clips/ --workers 8 --time-limit-s 10
    """

    paths: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Video files, or folders that are searched for them."""
    json: bool = False
    """Print one JSON object instead of a table."""
    time_limit_s: float = 30.0
    """Seconds after which a file counts as hanging."""
    workers: int = 2
    """Files checked at the same time."""

    def run(self) -> int:
        from rich.console import Console
        from rich.progress import Progress
        from rich.table import Table
        from rich.text import Text

        from vrjax.video.inspection import find_videos, inspect_files

        if not self.paths:
            raise InputError("No path given. Name video files or folders.")
        if self.workers < 1 or not self.time_limit_s > 0:
            raise InputError("--workers and --time-limit-s must be above 0.")
        files = find_videos(self.paths)
        found = {}
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("checking", total=len(files))
            for result in inspect_files(files, self.workers, self.time_limit_s):
                found[result.path] = result
                progress.advance(task)
        results = [found[path] for path in files]
        failing = [result for result in results if not result.ok]
        counts: dict[str, int] = {}
        for result in results:
            counts[result.kind] = counts.get(result.kind, 0) + 1

        if self.json:
            rows = [dataclasses.asdict(result) for result in results]
            json.dump({"files": rows, "counts": counts}, sys.stdout, indent=1)
            sys.stdout.write("\n")
        else:
            console = Console()
            table = Table("file", "kind", "why")
            for result in failing:
                table.add_row(Text(result.path), result.kind, Text(result.message.removeprefix(f"{result.path}: ")))
            if failing:
                console.print(table)
            listed = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
            console.print(Text(f"{len(results)} files: {listed}"))
        return 1 if failing else 0
