"""google-tunix's GRPO step, run by an interpreter that has it: see process.py for what it reads and prints.

python tunix_step.py MODEL_DIR PROMPT_FILE --group 8 --tokens 64
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a Hugging Face directory with Qwen2ForCausalLM and its tokenizer")
    parser.add_argument("prompt", help="a text file")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()

    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from flax import nnx
    from transformers import PreTrainedTokenizerFast
    from tunix.models.qwen2.model import ModelConfig
    from tunix.models.qwen2.params import create_model_from_safe_tensors
    from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
    from tunix.rl.rl_cluster import ClusterConfig, RLCluster, RLTrainingConfig, Role
    from tunix.rl.rollout.base_rollout import RolloutConfig

    sizes = json.loads((Path(options.model) / "config.json").read_text(encoding="utf-8"))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(options.model)
    text = Path(options.prompt).read_text(encoding="utf-8")
    length = len(tokenizer.encode(text))
    mesh = jax.make_mesh((1, 1), ("fsdp", "tp"), (jax.sharding.AxisType.Auto,) * 2, devices=jax.devices()[:1])
    config = ModelConfig(
        num_layers=sizes["num_hidden_layers"], vocab_size=sizes["vocab_size"], embed_dim=sizes["hidden_size"],
        hidden_dim=sizes["intermediate_size"], num_heads=sizes["num_attention_heads"],
        head_dim=sizes["hidden_size"] // sizes["num_attention_heads"], num_kv_heads=sizes["num_key_value_heads"],
        rope_theta=int(sizes["rope_parameters"]["rope_theta"]), norm_eps=sizes["rms_norm_eps"],
        use_tied_embedding=sizes["tie_word_embeddings"],
    )  # fmt: skip
    with mesh:
        model = create_model_from_safe_tensors(options.model, config, mesh, dtype=jnp.float32)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-6, weight_decay=1e-2))
    cluster = RLCluster(
        actor=model,
        tokenizer=tokenizer,
        cluster_config=ClusterConfig(
            role_to_mesh={Role.ACTOR: mesh, Role.REFERENCE: mesh, Role.ROLLOUT: mesh},
            rollout_engine="vanilla",
            training_config=RLTrainingConfig(
                actor_optimizer=optimizer, eval_every_n_steps=10**9, max_steps=100_000, mini_batch_size=1,
                train_micro_batch_size=1,
            ),
            rollout_config=RolloutConfig(
                max_tokens_to_generate=options.tokens, max_prompt_length=length, temperature=1.0, top_p=1.0, top_k=None,
                kv_cache_size=length + options.tokens + 1,
                eos_tokens=[sizes["vocab_size"]],  # no such id: every response has the same length
            ),
        ),
    )  # fmt: skip
    learner = GRPOLearner(
        rl_cluster=cluster,
        reward_fns=lambda prompts, completions, **_: [float(number) for number in range(len(completions))],
        algo_config=GRPOConfig(num_generations=options.group, num_iterations=1, beta=0.0, epsilon=0.2),
    )

    def as_told() -> Iterator[dict[str, Any]]:
        """The same prompt again each time a step is asked for; asking for the next one ends the step before."""
        print("@ready", flush=True)
        while sys.stdin.readline().strip() == "step":
            yield {"prompts": np.array([text])}
            jax.block_until_ready(nnx.state(cluster.actor_trainer.model))
            print("@done", flush=True)

    learner.train(as_told())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
