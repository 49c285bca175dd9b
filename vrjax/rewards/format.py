"""The format reward: is the response evidence, reasoning and answer, each once, and nothing else?"""

from __future__ import annotations

from vrjax.evidence import parse_response
from vrjax.rewards.reward import Reward, RewardPrompt, RewardRecord


def format_reward(prompt: RewardPrompt, response: str, record: RewardRecord) -> Reward:
    """1 for exactly one evidence, think and answer block in this order with only white space around them, else 0.

    EG-VQA, "Format reward". Blocks may span lines; a repeated tag does not pass. The rule is `Response.well_formed`, so
    the reward and the parser cannot disagree. The note of a 0 names the faults.
    """
    read = parse_response(response)
    return Reward(float(read.well_formed), note="" if read.well_formed else ", ".join(map(str, read.response_faults)))
