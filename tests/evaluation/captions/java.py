"""The programs of the COCO caption evaluation, run as pycocoevalcap runs them, but in UTF-8."""

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from vrjax.evaluation.captions.meteor import meteor_missing

needs_java = pytest.mark.skipif(meteor_missing() is not None, reason=f"{meteor_missing()}")


def java_words(captions: list[str], folder: Path) -> list[list[str]]:
    """Words of captions without line ends by Stanford's tokenizer, punctuation left out by pycocoevalcap's list."""
    spec = find_spec("pycocoevalcap")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    jar = Path(spec.submodule_search_locations[0]) / "tokenizer/stanford-corenlp-3.4.1.jar"
    text = folder / "captions.txt"
    text.write_text("\n".join(captions), encoding="utf-8")
    done = subprocess.run(
        ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", str(jar),
         "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase", str(text)],
        capture_output=True, check=True,
    )  # fmt: skip
    from pycocoevalcap.tokenizer.ptbtokenizer import PUNCTUATIONS

    lines = done.stdout.decode().split("\n")[: len(captions)]
    return [" ".join(word for word in line.rstrip().split(" ") if word not in PUNCTUATIONS).split() for line in lines]
