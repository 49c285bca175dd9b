"""Single pictures as a model reads them: an encoded image to patches."""

from __future__ import annotations

import hashlib
import io

import numpy as np

from vrjax.errors import InputError
from vrjax.generation.prompts import Vision
from vrjax.models.qwen2_5_vl import VisionConfig
from vrjax.video import frames_to_patches, smart_resize


def picture_vision(data: bytes, config: VisionConfig) -> Vision:
    """An encoded image (PNG, JPEG, …) in the size that the model's rules give it. Raises InputError where it cannot be
    read.
    """
    from PIL import Image

    digest = hashlib.sha256(data).hexdigest()
    try:
        pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    except Exception as error:  # Pillow raises many kinds on hostile files
        raise InputError(f"image {digest[:12]}: cannot be read ({error}). Send PNG or JPEG.") from error
    height, width = smart_resize(*pixels.shape[:2], factor=config.patch_size * config.merge_size, name="image")
    frames = np.repeat(pixels[None], config.temporal_patch_size, axis=0)
    patches = frames_to_patches(frames, height, width, config.patch_size, config.temporal_patch_size, config.merge_size)
    return Vision(patches, (1, height // config.patch_size, width // config.patch_size), None, f"image {digest}")
