"""The pieces of policy optimisation; `vrjax.training.policy_optimisation` puts them together.

prompts ─▶ sampler ─▶ groups ─▶ rewards ─▶ advantages ─▶ packing ─▶ programs ─▶ audit
           (engine)    │ journal                          one row a prompt, its G responses behind it
"""
