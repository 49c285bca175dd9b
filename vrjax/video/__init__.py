"""From a video file to patches: which frames (FramePlan), read in killable processes, resized, cut, as uint8.

    plan = plan_frames("clip.mp4", FrameOptions(fps=2))
    patches = load_patches(plan)          # uint8 [N, 1176], normalised later, on the device

No model and no accelerator is known here; nothing imports JAX or torch.
"""

from vrjax.video.clock import draw_clock
from vrjax.video.frame_plan import FrameOptions, FramePlan, VideoInfo, plan_frames
from vrjax.video.inspection import Inspection, find_videos, inspect_files
from vrjax.video.patches import CLIP_MEAN, CLIP_STD, frames_to_patches, normalise, resize_frames, to_patches
from vrjax.video.pool import ReaderPool
from vrjax.video.reader import load_patches, probe, read_frames
from vrjax.video.sampling import SamplingError, clip_range, frame_count, smart_resize

__all__ = [
    "CLIP_MEAN",
    "CLIP_STD",
    "FrameOptions",
    "FramePlan",
    "Inspection",
    "ReaderPool",
    "SamplingError",
    "VideoInfo",
    "clip_range",
    "draw_clock",
    "find_videos",
    "frame_count",
    "frames_to_patches",
    "inspect_files",
    "load_patches",
    "normalise",
    "plan_frames",
    "probe",
    "read_frames",
    "resize_frames",
    "smart_resize",
    "to_patches",
]
