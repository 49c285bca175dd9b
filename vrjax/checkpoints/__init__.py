"""Weights and training state on disk."""

from vrjax.checkpoints.hugging_face import load_parameters, save_parameters
from vrjax.checkpoints.model_files import write_model_files
from vrjax.checkpoints.training_state import Restored, TrainingCheckpoints

__all__ = [
    "Restored",
    "TrainingCheckpoints",
    "load_parameters",
    "save_parameters",
    "write_model_files",
]
