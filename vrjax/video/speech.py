"""Speech in a video as a transcript, by faster-whisper, which is an optional extra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrjax.errors import InputError, VideoError
from vrjax.video.transcript import Transcript, Utterance


@dataclass(frozen=True)
class SpeechOptions:
    """model: size (`small`, `large-v3`, …), Hugging Face id, or directory of CTranslate2 weights. language: a code such
    as `en`; None: found out. device, compute_type: as faster-whisper has them.
    """

    model: str = "small"
    language: str | None = None
    device: str = "auto"
    compute_type: str = "default"


def transcribe(
    video: str | Path,
    options: SpeechOptions | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> Transcript:
    """What is said in a video. progress: called with (seconds done, seconds in all).

    A video without sound has an empty transcript. Raises InputError where faster-whisper or its weights are missing,
    VideoError where the file cannot be read.
    """
    return Recogniser(options).transcribe(video, progress)


class Recogniser:
    """A loaded speech model, for one video after the other. Raises InputError as `transcribe` does."""

    def __init__(self, options: SpeechOptions | None = None) -> None:
        self.options = options or SpeechOptions()
        self._model = _load(self.options)

    def transcribe(self, video: str | Path, progress: Callable[[float, float], None] | None = None) -> Transcript:
        """What is said in a video; see the function of this name."""
        if not _has_sound(Path(video)):
            return Transcript(())
        try:
            segments, info = self._model.transcribe(str(video), language=self.options.language)
            found = []
            for segment in segments:  # recognised as they are asked for
                words = " ".join(segment.text.split())
                if words:
                    found.append(Utterance(round(segment.start, 3), round(max(segment.start, segment.end), 3), words))
                if progress is not None:
                    progress(min(segment.end, info.duration), info.duration)
        except (OSError, ValueError, RuntimeError) as error:
            reason = _first_line(error)
            raise VideoError(f"{video}: its speech cannot be recognised ({reason}).", "unreadable") from error
        return Transcript(tuple(sorted(found, key=lambda one: one.start)))


def _load(options: SpeechOptions) -> Any:
    try:
        from faster_whisper import WhisperModel  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(
            "faster-whisper is not installed, and nothing else here recognises speech. Install it with "
            "pip install 'vrjax[transcripts]', or give transcripts as .srt, .vtt or .json files."
        ) from error
    try:
        return WhisperModel(options.model, device=options.device, compute_type=options.compute_type)
    except Exception as error:  # the hub, CTranslate2 and the tokenizer raise many kinds
        raise InputError(
            f"the weights of the speech model {options.model!r} cannot be had ({_first_line(error)}). Connect to the "
            "Hugging Face hub once, or give the directory of a downloaded CTranslate2 model (--model DIR)."
        ) from error


def _has_sound(video: Path) -> bool:
    import av
    from av.error import FFmpegError

    try:
        with av.open(str(video)) as container:
            return bool(container.streams.audio)
    except (FFmpegError, OSError) as error:
        raise VideoError(f"{video}: cannot be opened ({_first_line(error)}). Check the file.", "unreadable") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
