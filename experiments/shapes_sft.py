"""A small Qwen2.5-VL (about one million parameters), from nothing, on clips of coloured shapes.

`make_config` is what the demo trains. To run it alone, on clips made by `vrjax-data shapes --out data/shapes`:

    vrjax train experiments/shapes_sft.py --run-dir runs/shapes
"""

from pathlib import Path

from data_tools.shapes.coarse_labels import coarse_labels
from vrjax.models.decoder import DecoderConfig
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig, VisionConfig
from vrjax.records import load_records, save_records
from vrjax.training import (
    BatchConfig,
    CheckpointConfig,
    DatasetConfig,
    FreshModel,
    InputConfig,
    OptimizerConfig,
    ResponseTemplate,
    SftConfig,
)
from vrjax.video import FrameOptions

# 56 x 56 pixels, one temporal patch a second, 4 tokens each.
FRAMES = FrameOptions(fps=2.0, min_pixels=56 * 56, max_pixels=56 * 56, total_pixels=None)
WIDENED = 0.5  # probability that a boundary of the coarse labels lies a second too far out
TEMPLATE = ResponseTemplate(reasoning="record", instruction="")


def model_config(vocabulary: dict[str, int]) -> Qwen2_5VLConfig:
    """Sizes of the small model; token ids are those of its own tokenizer."""
    return Qwen2_5VLConfig(
        text=DecoderConfig(
            vocabulary=len(vocabulary),
            width=128,
            layers=4,
            heads=4,
            kv_heads=2,
            head_size=32,
            mlp=352,
            norm_eps=1e-6,
            rope_theta=1e4,
            tied=False,
            qkv_bias=True,
            max_positions=512,
            sections=(4, 6, 6),
        ),
        vision=VisionConfig(
            layers=2,
            width=64,
            heads=4,
            mlp=176,
            out_width=128,
            full_layers=(1,),
            window=4,
            tokens_per_second=2,
        ),
        image_token=vocabulary["<|image_pad|>"],
        video_token=vocabulary["<|video_pad|>"],
        vision_start_token=vocabulary["<|vision_start|>"],
        vision_end_token=vocabulary["<|vision_end|>"],
    )


def make_config(
    data: Path,
    tokenizer: Path,
    vocabulary: dict[str, int],
    run_dir: Path,
    *,
    steps: int,
    seed: int = 0,
    labels: str = "",
) -> SftConfig:
    """SFT on `data`/train.json: 8 clips x 4 questions a step, which share the clip's vision and prompt prefix.

    labels: "" for the exact ones, "_coarse" for those of `make_coarse_labels`.
    """
    return SftConfig(
        run_dir=run_dir,
        model=FreshModel(model_config(vocabulary), tokenizer, seed),
        data=(DatasetConfig(data / f"train{labels}.json"),),
        validation=(DatasetConfig(data / f"val{labels}.json"),),
        frames=FRAMES,
        template=TEMPLATE,
        batch=BatchConfig(videos=8, questions=4, max_programs=2),
        optimizer=OptimizerConfig(method="muon", learning_rate=2e-3, warmup=50, b2=0.99, final_share=0.02),
        steps=steps,
        freeze_vision=False,
        remat=False,
        input=InputConfig(cache_dir=data / "patches"),
        checkpoints=CheckpointConfig(save_every=200, keep_last=1),
        validate_every=200,
        log_every=10,
        seed=seed,
    )


def make_coarse_labels(data: Path, seed: int) -> None:
    """Write `data`/train_coarse.json and val_coarse.json: boundaries widened at random, as hand-made ones are.

    With the events of 1 and 2 s here, a probability of .7 would make the wider span the likelier one everywhere, and a
    model that has learned it well would stand at a soft EG-F1 of .40.
    """
    for split in ("train", "val"):
        records = load_records(data / f"{split}.json")
        save_records(data / f"{split}_coarse.json", coarse_labels(records, seed, probability=WIDENED))


def make_tokenizer(data: Path) -> tuple[Path, dict[str, int]]:
    """A word tokenizer of all texts of `data`/train.json, made once; its folder and its vocabulary."""
    from transformers import AutoTokenizer

    from data_tools.shapes.tokenizer import build_tokenizer

    folder = data / "tokenizer"
    if not (folder / "tokenizer.json").is_file():
        questions = [question for record in load_records(data / "train.json") for question in record.questions]
        build_tokenizer([text for one in questions for text in (one.question, TEMPLATE.response(one))], folder)
    return folder, AutoTokenizer.from_pretrained(str(folder)).get_vocab()


def __getattr__(name: str) -> SftConfig:
    if name == "config":  # made when asked for, since it needs the clips
        data = Path("data/shapes")
        return make_config(data, *make_tokenizer(data), Path("runs/shapes"), steps=700)
    raise AttributeError(name)
