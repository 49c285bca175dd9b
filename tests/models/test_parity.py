"""Logits and vision features against transformers in float32, with explicit positions (rule `released`)."""

import numpy as np
import pytest

from .reference import Part, Reference, compose, deviation, pack, relative

LOGITS_TOLERANCE = 1e-4  # largest difference, in standard deviations of the logits
FEATURES_TOLERANCE = 1e-5  # largest difference, relative to the largest feature

CELLS: dict[str, tuple[Part, ...]] = {
    "text only": (40,),
    "one image, ragged windows": (5, ((1, 6, 10), None), 9),
    "one image, whole windows": (5, ((1, 16, 8), None), 9),
    "video of 1, ragged windows": (4, ((1, 10, 14), 1.0), 11),
    "video of 3, ragged windows": (4, ((3, 10, 12), 0.7), 11),
    "video of 8, ragged windows": (4, ((8, 6, 18), 0.25), 11),
    "video of 3, whole windows": (4, ((3, 8, 16), 1.5), 11),
    "two videos of different size": (3, ((3, 6, 10), 0.5), 4, ((2, 14, 12), 1.3), 6),
    "two videos of different size, whole windows": (3, ((2, 8, 8), 0.5), 4, ((3, 16, 8), 1.3), 6),
    "image and video": (3, ((1, 10, 6), None), 5, ((3, 6, 10), 2.0), 8),
    "video and two images": (2, ((2, 12, 6), 1.0), 3, ((1, 4, 4), None), 1, ((1, 8, 8), None), 8),
    "1,500 tokens": (300, ((6, 20, 28), 0.5), 358),
}


@pytest.mark.parametrize("cell", CELLS)
def test_prompt(reference: Reference, cell: str, record_property):
    prompt = compose(reference.config, 7, *CELLS[cell])
    rows = pack(reference.config, [[prompt]])
    logits, features = reference.outputs(rows)
    found = deviation(logits[0], reference.torch_logits([prompt])[0])
    record_property("logits", found)
    assert found <= LOGITS_TOLERANCE
    if prompt.clips:
        theirs = np.concatenate([reference.torch_features(clip) for clip in prompt.clips])
        found = relative(features, theirs)
        record_property("features", found)
        assert found <= FEATURES_TOLERANCE


def test_cells_cover_both_window_paths(reference: Reference):
    paths = {cell: pack(reference.config, [[compose(reference.config, 7, *parts)]]) for cell, parts in CELLS.items()}
    for cell, rows in paths.items():
        if rows.vision is not None:
            assert (rows.vision.to_windows is None) == ("whole windows" in cell), cell
    assert len(compose(reference.config, 7, *CELLS["1,500 tokens"]).tokens) == 1500


BATCH: tuple[tuple[Part, ...], ...] = (
    (30,),
    (4, ((3, 10, 12), 0.7), 11),
    (3, ((1, 10, 6), None), 2, ((2, 6, 10), 2.0), 8),
    (9, ((2, 6, 14), 1.0), 40),
)


def test_batch_of_unequal_lengths(reference: Reference, record_property):
    """Each row equals transformers' row: it gets its own videos, and padding changes nothing."""
    prompts = [compose(reference.config, seed, *parts) for seed, parts in enumerate(BATCH)]
    assert len({len(prompt.tokens) for prompt in prompts}) == len(prompts)
    logits, _ = reference.outputs(pack(reference.config, [[prompt] for prompt in prompts]))
    theirs = reference.torch_logits(prompts)
    alone = [reference.torch_logits([prompt])[0] for prompt in prompts]
    found = []
    for row, prompt in enumerate(prompts):
        mine = logits[row, : len(prompt.tokens)]
        found += [deviation(mine, theirs[row]), deviation(mine, alone[row])]
    record_property("logits", max(found))
    assert max(found) <= LOGITS_TOLERANCE
    assert np.isfinite(logits).all()


def test_padded_row_equals_unpadded_row(periodic: Reference, record_property):
    """More row padding and larger vision buckets (frames, patches, windows) than needed."""
    prompt = compose(periodic.config, 3, *BATCH[2])
    alone, own = periodic.outputs(pack(periodic.config, [[prompt]]))
    rows = pack(periodic.config, [[prompt]], length=300, frames=5, frame_patches=160, windows=4)
    assert not rows.vision.valid.all()
    padded, features = periodic.outputs(rows)
    record_property("logits", deviation(padded[0, : len(prompt.tokens)], alone[0]))
    assert deviation(padded[0, : len(prompt.tokens)], alone[0]) <= 1e-5
    assert relative(features, own) <= 1e-6
    assert np.isfinite(padded).all()
