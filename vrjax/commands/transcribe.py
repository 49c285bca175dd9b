"""`vrjax transcribe`: what is said in videos, with times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vrjax.errors import InputError


@dataclass(frozen=True)
class Transcribe:
    """Write down what is said in videos, as JSON: [{"start", "end", "text"}, …], times in seconds.

    Needs faster-whisper (`pip install 'vrjax[transcripts]'`) and its weights, from the Hugging Face hub or a directory.
    With --from, subtitles (.srt, .vtt, .json) are brought into the same form, and no speech is recognised.

    Examples::

        vrjax transcribe film.mp4 --out film.json
        vrjax transcribe clips/*.mp4 --out-dir transcripts --model large-v3 --language en
        vrjax transcribe --from subtitles.srt --out film.json
    """

    videos: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Video or audio files."""
    out: Path | None = None
    """File to write, of one video."""
    out_dir: Path | None = None
    """Folder to write a file for each video to; one that is there already is left as it is."""
    subtitles: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Subtitles to bring into the same form."""
    model: str = "small"
    """Size of the speech model, Hugging Face id, or directory of CTranslate2 weights."""
    language: str | None = None
    """Code such as `en`; by default it is found out."""
    device: str = "auto"
    """auto, cpu or cuda."""

    def run(self) -> int:
        """Transcribe, and return the exit code."""
        from rich.console import Console
        from rich.progress import Progress

        from vrjax.video.speech import Recogniser, SpeechOptions
        from vrjax.video.transcript import read_transcript

        console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
        if self.subtitles is not None:
            if self.videos or self.out is None:
                raise InputError("--from takes one file of subtitles and --out, and no videos.")
            found = read_transcript(self.subtitles)
            found.write(self.out)
            console.print(f"{self.out}: {len(found.utterances)} utterances.")
            return 0
        targets = self._targets()
        missing = [video for video in self.videos if not video.is_file()]
        if missing:
            raise InputError(f"{missing[0]}: no such file. Check the path.")
        recogniser = Recogniser(SpeechOptions(self.model, self.language, self.device))
        with Progress(console=console) as bar:
            for video, target in zip(self.videos, targets, strict=True):
                if self.out is None and target.exists():
                    console.print(f"{target}: is there already.")
                    continue
                task = bar.add_task(video.name, total=None)
                found = recogniser.transcribe(
                    video, lambda done, total, task=task: bar.update(task, completed=done, total=total)
                )
                found.write(target)
                bar.update(task, visible=False)
                console.print(f"{target}: {len(found.utterances)} utterances.")
        return 0

    def _targets(self) -> list[Path]:
        if not self.videos:
            raise InputError("no video is given. Name a file, or subtitles with --from.")
        if (self.out is None) == (self.out_dir is None):
            raise InputError("give --out for one video, or --out-dir for several.")
        if self.out is not None:
            if len(self.videos) > 1:
                raise InputError("--out is for one video. Give --out-dir for several.")
            return [self.out]
        assert self.out_dir is not None
        names = [video.stem for video in self.videos]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise InputError(f"two videos are called {twice[0]}, and would be written to one file. Rename one.")
        return [self.out_dir / f"{name}.json" for name in names]
