"""The rows of EG-Reasoner's ablation table, each a configuration that says only how it differs from the full one.

| row | file |
|---|---|
| base model | none to train: evaluate Qwen2.5-VL-7B-Instruct as it is |
| supervised fine-tuning | `sft` |
| RL without the evidence reward | `rl_without_evidence` |
| RL without its soft part | `rl_without_soft` |
| full EG-Reasoner | `experiments/eg_reasoner_7b` |
| from VideoChat-R1, without the evidence reward | `videochat_r1_7b` |

`shapes` runs the same rows on clips of coloured shapes, on one machine.
"""
