"""Files of predictions and references in every form, and `vrjax score captions`."""

import json

import pytest

from vrjax.cli import main
from vrjax.errors import InputError
from vrjax.evaluation.captions.caption_files import load_caption_pairs

TOLD = {"q1": "a dog", "q2": "two cats"}
KNOWN = {"q1": ["A dog."], "q2": ["Cats.", "Two cats."]}
PREDICTIONS = {
    "by id": TOLD,
    "lists by id": {name: [text] for name, text in TOLD.items()},
    "rows": [{"question_id": name, "pred": text} for name, text in TOLD.items()],
    "rows by id": {name: {"response": text, "answer": "not this"} for name, text in TOLD.items()},
    "COCO results": [{"image_id": name, "caption": text} for name, text in TOLD.items()],
}
REFERENCES = {
    "by id": KNOWN,
    "rows": [{"id": name, "references": texts} for name, texts in KNOWN.items()],
    "COCO annotations": {
        "images": [],
        "annotations": [{"image_id": name, "caption": text} for name, texts in KNOWN.items() for text in texts],
    },
    "rows that share an id": [{"id": name, "answer": text} for name, texts in KNOWN.items() for text in texts],
}


def written(folder, name, value):
    path = folder / name
    if name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in value))
    else:
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


@pytest.mark.parametrize("predictions", PREDICTIONS)
@pytest.mark.parametrize("references", REFERENCES)
def test_forms(tmp_path, predictions, references):
    found = load_caption_pairs(
        written(tmp_path, "p.json", PREDICTIONS[predictions]), written(tmp_path, "r.json", REFERENCES[references])
    )
    assert found == (TOLD, KNOWN)


def test_json_lines_with_both_sides_and_numbers_as_ids(tmp_path):
    path = written(tmp_path, "p.jsonl", [{"id": 7, "pred": "a", "answer": "b"}, {"id": 8, "pred": "c", "answer": "d"}])
    assert load_caption_pairs(path) == ({"7": "a", "8": "c"}, {"7": ["b"], "8": ["d"]})


def test_moviecore_form_is_matched_by_clip_and_question(tmp_path):
    rows = [
        {"question": "Why?", "answer": "So."},
        {"question": "How?", "answer": "Thus.", "enhanced_answer": [{"content": "Better."}]},
    ]
    answered = [{"question": "How?", "pred": "Well.</s>"}, {"question": "Why?", "pred": "Hm."}]
    references = written(tmp_path, "r.json", {"a.mp4": rows})
    found = load_caption_pairs(written(tmp_path, "p.json", {"a.mp4": answered}), references)
    assert found == ({"a_1": "Hm.", "a_2": "Well."}, {"a_1": ["So."], "a_2": ["Better."]})


@pytest.mark.parametrize(
    ("predictions", "references", "sentence"),
    [
        ([{"id": "q1", "pred": "a"}, {"id": "q1", "pred": "b"}], {"q1": "x"}, "more than one prediction for q1"),
        ('{"q1": "a", "q1": "b"}', {"q1": "x"}, "the key 'q1' occurs twice"),
        ({"q1": "a", "q9": "b"}, {"q1": "x"}, "no reference for q9"),
        ({"q1": "a"}, {"q1": "x", "q2": "y"}, r"no prediction for q2.*--missing unanswered"),
        ({}, {"q1": "x"}, "holds no texts"),
        ([], {"q1": "x"}, "holds no texts"),
        ([{"id": "q1", "pred": None}], {"q1": "x"}, "holds no predictions"),
        ([{"pred": "a"}], {"q1": "x"}, "record number 1: id: is missing"),
        ([{"id": "q1", "answer": "a"}], {"q1": "x"}, "record q1: holds no text.*pred"),
        ([{"id": "q1", "pred": 5}], {"q1": "x"}, "record q1: holds int, not a text"),
        ([["q1", "a"]], {"q1": "x"}, "number 1: is list"),
        ({"q1": "a"}, {"q1": {"question": "x"}}, "record q1: holds no text"),
        ("[1, ", {"q1": "x"}, "is not JSON"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, predictions, references, sentence):
    paths = written(tmp_path, "p.json", predictions), written(tmp_path, "r.json", references)
    with pytest.raises(InputError, match=sentence):
        load_caption_pairs(*paths)


def test_a_prediction_is_never_its_own_reference(tmp_path):
    for rows in ({"q1": "a"}, [{"image_id": "q1", "caption": "a"}]):
        with pytest.raises(InputError, match=r"without references|holds no text"):
            load_caption_pairs(written(tmp_path, "p.json", rows))


def run(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(["score", "captions", *words])
    printed = capsys.readouterr()
    return ended.value.code or 0, printed.out, printed.err


def test_the_command(tmp_path, capsys):
    predictions, references = written(tmp_path, "p.json", TOLD), written(tmp_path, "r.json", KNOWN)
    rows = tmp_path / "rows.jsonl"
    code, out, _ = run(capsys, str(predictions), str(references), "--json", "--metrics", "bleu", "cider",
                       "--per-question", str(rows))  # fmt: skip
    found = json.loads(out)
    assert (code, found["n"], found["references"], found["empty"]) == (0, 2, 3, 0)
    assert found["bleu_1"] == pytest.approx(1)
    assert found["cider"] > 1
    assert [json.loads(line)["id"] for line in rows.read_text().splitlines()] == ["q1", "q2"]
    code, out, _ = run(capsys, str(predictions), str(references), "--metrics", "bleu")
    assert (code, "BLEU-4" in out, "CIDEr" in out) == (0, True, False)


def test_missing_texts_count_as_empty_where_asked_for(tmp_path, capsys):
    predictions, references = written(tmp_path, "p.json", {"q1": "A dog."}), written(tmp_path, "r.json", KNOWN)
    code, _, err = run(capsys, str(predictions), str(references), "--metrics", "bleu")
    assert (code, "q2" in err) == (2, True)
    code, out, _ = run(
        capsys, str(predictions), str(references), "--metrics", "bleu", "--json", "--missing", "unanswered"
    )
    assert (code, json.loads(out)["empty"]) == (0, 1)


def test_a_third_file_is_refused(tmp_path, capsys):
    path = str(written(tmp_path, "p.json", TOLD))
    code, _, err = run(capsys, path, path, path)
    assert (code, "Leave out the others" in err) == (2, True)
