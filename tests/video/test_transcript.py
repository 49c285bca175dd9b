"""Subtitles and transcripts of all kinds in one form; speech recognised where that is possible."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrjax.cli import main
from vrjax.errors import InputError, VideoError
from vrjax.video.speech import SpeechOptions, transcribe
from vrjax.video.transcript import Transcript, Utterance, read_transcript

SRT = """1
00:00:01,500 --> 00:00:03,250
<i>Hello,</i> {\\an8}world &amp; all.
Second line.

2
00:01:00,000 --> 01:00:02,5
- Who is there?
3
00:00:30,000 --> 00:00:31,000
No empty line before this one: 7 < 8.

4
00:00:40,000 --> 00:00:41,000

"""
VTT = """WEBVTT - a title

STYLE
::cue { color: --> }

NOTE
00:00:09.000 --> 00:00:10.000
not said

intro
00:01.500 --> 00:03.250 align:start position:10%
<v Roger Bingham>Hello,</v> <c.loud>world</c> &amp;<00:00:02.000> all.
Second line.

00:30.000 --> 00:31.000
No empty line before this one: 7 &lt; 8.

00:01:00.000 --> 01:00:02.500
- Who is there?
"""
WANTED = Transcript(
    (
        Utterance(1.5, 3.25, "Hello, world & all. Second line."),
        Utterance(30, 31, "No empty line before this one: 7 < 8."),
        Utterance(60, 3602.5, "- Who is there?"),
    )
)


def written(folder: Path, name: str, content) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


ROWS = [
    {"start": 60, "end": 3602.5, "text": "- Who is there?", "id": 1},
    {"start": 1.5, "end": 3.25, "text": " Hello, world & all.  Second line."},
    {"start": 30, "end": 31, "text": "No empty line before this one: 7 < 8."},
    {"start": 5, "end": 6, "text": " "},
]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.srt", SRT),
        ("a.srt", "\ufeff" + SRT.replace("\n", "\r\n")),
        ("a.SRT", SRT.replace(",", ".").replace("Hello.", "Hello,")),
        ("a.vtt", VTT),
        ("a.vtt", VTT.replace("\n", "\r")),
        ("a.json", json.dumps(ROWS)),
        ("a.json", json.dumps({"text": "…", "language": "en", "segments": ROWS})),
        ("a.jsonl", "\n".join(json.dumps(row) for row in ROWS)),
    ],
)
def test_every_form_is_read_into_one(tmp_path, name, content):
    assert read_transcript(written(tmp_path, name, content)) == WANTED


def test_it_is_written_and_read_again(tmp_path):
    WANTED.write(tmp_path / "deep" / "t.json")
    assert read_transcript(tmp_path / "deep" / "t.json") == WANTED
    assert WANTED.between(3.25, 60.5).utterances == WANTED.utterances[1:]
    assert WANTED.between(3.0, 3.1).text == "Hello, world & all. Second line."
    assert WANTED.between(4, 5).text == ""


@pytest.mark.parametrize(
    ("name", "content"), [("a.srt", ""), ("a.srt", "\n \n"), ("a.vtt", "WEBVTT\n"), ("a.json", "[]")]
)
def test_silence_is_an_empty_transcript(tmp_path, name, content):
    assert read_transcript(written(tmp_path, name, content)) == Transcript(())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.srt", "1\n00:00:01,000 -> 00:00:02,000\nx\n", "holds no cue"),
        ("a.srt", "1\n00:00:01,000 --> 2\nx\n", r"line 2: the times '00:00:01,000 --> 2' cannot be read"),
        ("a.srt", "1\n00:00:05,000 --> 00:00:02,000\nx\n", "line 2: ends at 2 s, before it starts at 5 s"),
        ("a.srt", "1\n00:70:05,000 --> 00:80:02,000\nx\n", "line 2: minutes and seconds must lie below 60"),
        ("a.srt", "Dear reader,\nthis is a letter.\n", "holds no cue"),
        ("a.srt", b"\xff\xfe1\x00", "is not UTF-8 text"),
        ("a.vtt", SRT, "line 1 is not WEBVTT"),
        ("a.json", "{", "line 1 is not JSON"),
        ("a.json", '{"words": []}', "expected a list"),
        ("a.json", '["x"]', "entry 0: expected an object"),
        ("a.json", '[{"start": "0", "end": 1, "text": "x"}]', 'entry 0: start is "0", not seconds'),
        ("a.json", '[{"start": 0, "end": NaN, "text": "x"}]', "entry 0: end is NaN"),
        ("a.json", '[{"start": 0, "end": null, "text": "x"}]', "entry 0: end is null"),
        ("a.json", '[{"start": true, "end": 1, "text": "x"}]', "entry 0: start is true"),
        ("a.json", '[{"start": -1, "end": 1, "text": "x"}]', "entry 0: start is -1"),
        ("a.json", '[{"start": 2, "end": 1, "text": "x"}]', "entry 0: ends at 1 s"),
        ("a.json", '[{"start": 0, "end": 1}]', "entry 0: text is not there"),
        ("a.ass", "", "not a transcript that can be read"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, message):
    path = written(tmp_path, name, content)
    with pytest.raises(InputError, match=message) as found:
        read_transcript(path)
    assert name in str(found.value)


times = st.integers(0, 10**8).map(lambda milliseconds: milliseconds / 1000)
words = st.lists(st.text("abcdefg hij,.!?'", min_size=1, max_size=12), min_size=1, max_size=3)


@given(st.lists(st.tuples(times, times, words), max_size=8))
def test_any_cues_written_as_srt_and_vtt_are_read_back(tmp_path_factory, cues):
    def clock(seconds: float, mark: str) -> str:
        whole = round(seconds * 1000)
        return f"{whole // 3_600_000:02d}:{whole // 60_000 % 60:02d}:{whole // 1000 % 60:02d}{mark}{whole % 1000:03d}"

    folder = tmp_path_factory.mktemp("cues")
    cues = [(min(a, b), max(a, b), " ".join(" ".join(text).split())) for a, b, text in cues]
    wanted = sorted(((a, b, text) for a, b, text in cues if text), key=lambda one: one[0])
    for name, mark, head in (("a.srt", ",", ""), ("a.vtt", ".", "WEBVTT\n\n")):
        body = "".join(
            f"{n}\n{clock(a, mark)} --> {clock(b, mark)}\n{text}\n\n" for n, (a, b, text) in enumerate(cues, 1)
        )
        found = read_transcript(written(folder, name, head + body)).utterances
        assert [(one.start, one.end, one.text) for one in found] == [
            (pytest.approx(a), pytest.approx(b), text) for a, b, text in wanted
        ]


# ---------------------------------------------------------------- speech


def clip(path: Path, sound: bool) -> Path:
    """Two seconds of a grey picture, with a tone or without sound."""
    import av

    with av.open(str(path), "w") as container:
        video = container.add_stream("mpeg4", rate=5)
        video.width, video.height, video.pix_fmt = 64, 64, "yuv420p"
        audio = container.add_stream("aac", rate=16_000, layout="mono") if sound else None
        for _ in range(10):
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 127, np.uint8), "rgb24")
            container.mux(video.encode(frame))
        container.mux(video.encode())
        if audio is not None:
            tone = np.sin(np.arange(32_000) * 0.1).astype(np.float32)[None] * 0.3
            for start in range(0, 32_000, 1024):
                frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(tone[:, start : start + 1024]), "fltp", "mono")
                frame.sample_rate, frame.pts = 16_000, start
                container.mux(audio.encode(frame))
            container.mux(audio.encode())
    return path


def run(capsys, *arguments) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["transcribe", *map(str, arguments)])
    return ended.value.code or 0, capsys.readouterr().err


def test_without_faster_whisper_one_is_told_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "faster_whisper", None)  # as Python sees a package that is not there
    path = clip(tmp_path / "a.mp4", sound=True)
    code, err = run(capsys, path, "--out", tmp_path / "a.json")
    assert code == 2
    assert "pip install 'vrjax[transcripts]'" in " ".join(err.split())
    assert "Traceback" not in err
    assert not (tmp_path / "a.json").exists()


def test_without_weights_one_is_told_what_to_do(tmp_path, monkeypatch):
    pytest.importorskip("faster_whisper", reason="faster-whisper is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(InputError, match=r"weights of the speech model 'tiny' cannot be had .*--model DIR"):
        transcribe(clip(tmp_path / "a.mp4", sound=True), SpeechOptions(model="tiny"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="cannot be had"):
        transcribe(clip(tmp_path / "b.mp4", sound=True), SpeechOptions(model=str(tmp_path / "empty")))


@pytest.fixture(scope="module")
def tiny_whisper(tmp_path_factory) -> Path:
    """Random weights in the form that faster-whisper reads: nothing it says makes sense, but all of it runs."""
    pytest.importorskip("faster_whisper", reason="faster-whisper is not installed")
    torch = pytest.importorskip("torch")
    from ctranslate2.converters import TransformersConverter
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, WhisperConfig, WhisperFeatureExtractor
    from transformers import WhisperForConditionalGeneration as Whisper

    folder = tmp_path_factory.mktemp("whisper")
    names = ("endoftext", "startoftranscript", "en", "translate", "transcribe", "startoflm", "startofprev", "nospeech",
             "notimestamps")  # fmt: skip
    special = [f"<|{name}|>" for name in (*names, *(f"{n * 0.02:.2f}" for n in range(1501)))]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    base = Tokenizer(models.BPE({letter: n for n, letter in enumerate(alphabet)}, []))
    base.pre_tokenizer, base.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=base, eos_token="<|endoftext|>", unk_token="<|endoftext|>")
    tokenizer.add_special_tokens({"additional_special_tokens": special[1:]})
    at = tokenizer.get_vocab()
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=len(at), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, num_mel_bins=80, max_target_positions=448,
        decoder_start_token_id=at["<|startoftranscript|>"], eos_token_id=at["<|endoftext|>"],
        pad_token_id=at["<|endoftext|>"], bos_token_id=at["<|endoftext|>"],
    )  # fmt: skip
    model = Whisper(config)
    model.generation_config.lang_to_id = {"<|en|>": at["<|en|>"]}
    model.generation_config.no_timestamps_token_id = at["<|notimestamps|>"]
    model.generation_config.suppress_tokens = model.generation_config.begin_suppress_tokens = []
    model.save_pretrained(folder / "torch")
    tokenizer.save_pretrained(folder / "torch")
    WhisperFeatureExtractor().save_pretrained(folder / "torch")
    converter = TransformersConverter(str(folder / "torch"), copy_files=["tokenizer.json", "preprocessor_config.json"])
    converter.convert(str(folder / "model"))
    return folder / "model"


def test_sound_goes_through_the_recogniser(tmp_path, tiny_whisper, capsys):
    path = clip(tmp_path / "a.mp4", sound=True)
    silent = clip(tmp_path / "silent.mp4", sound=False)
    words = ("--model", tiny_whisper, "--language", "en", "--device", "cpu", "--out-dir", tmp_path / "out")
    code, err = run(capsys, path, silent, *words)
    assert code == 0, err
    found = read_transcript(tmp_path / "out/a.json")
    assert all(0 <= one.start <= one.end for one in found.utterances)
    assert read_transcript(tmp_path / "out/silent.json") == Transcript(())
    code, err = run(capsys, path, silent, *words)
    assert (code, err.count("is there already")) == (0, 2)
    broken = written(tmp_path, "broken.mp4", path.read_bytes()[:300])
    with pytest.raises(VideoError, match=r"broken\.mp4"):
        transcribe(broken, SpeechOptions(model=str(tiny_whisper)))


def test_subtitles_are_brought_into_the_form(tmp_path, capsys):
    path = written(tmp_path, "a.srt", SRT)
    code, err = run(capsys, "--from", path, "--out", tmp_path / "a.json")
    assert code == 0, err
    assert read_transcript(tmp_path / "a.json") == WANTED


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no video is given"),
        (("a.mp4",), "give --out for one video"),
        (("a.mp4", "b.mp4", "--out", "x"), "--out is for one video"),
        (("a/x.mp4", "b/x.mkv", "--out-dir", "o"), "two videos are called x"),
        (("nowhere.mp4", "--out", "x"), "nowhere.mp4: no such file"),
        (("--from", "a.srt"), "--from takes one file"),
    ],
)
def test_bad_usage(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    code, err = run(capsys, *words)
    assert (code, message in " ".join(err.split())) == (2, True), err
