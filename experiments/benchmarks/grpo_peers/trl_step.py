"""TRL's GRPO step, run by an interpreter that has TRL: see process.py for what it reads and prints.

python trl_step.py MODEL_DIR PROMPT_FILE --group 8 --tokens 64 --attention sdpa --threads 2
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a Hugging Face directory with Qwen2ForCausalLM and its tokenizer")
    parser.add_argument("prompt", help="a text file")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()

    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(options.threads)

    class AsTold(TrainerCallback):
        """A step begins when it is asked for; its end is said."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 0:
                print("@ready", flush=True)
            if sys.stdin.readline().strip() != "step":
                sys.exit(0)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            print("@done", flush=True)

    model = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=torch.float32, attn_implementation=options.attention
    )
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=options.group, num_generations=options.group,
            max_completion_length=options.tokens, generation_kwargs={"min_new_tokens": options.tokens},
            temperature=1.0, top_p=1.0, top_k=0, beta=0.0, learning_rate=1e-6, weight_decay=1e-2, max_grad_norm=1.0,
            lr_scheduler_type="constant", max_steps=100_000, bf16=False, gradient_checkpointing=False, use_cpu=True,
            report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [float(number) for number in range(len(completions))],
            args=config,
            train_dataset=Dataset.from_dict({"prompt": [Path(options.prompt).read_text(encoding="utf-8")] * 64}),
            processing_class=PreTrainedTokenizerFast.from_pretrained(options.model),
            callbacks=[AsTold()],
        )
        trainer.train()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
