"""Rewards: plain functions `(prompt, response, record) → Reward`, weighted sums of them, and their runner."""

from vrjax.rewards.answer import Judge, JudgedAnswer, RuleAnswer
from vrjax.rewards.batch import RewardBatch
from vrjax.rewards.composite import CompositeReward, eg_reasoner_reward
from vrjax.rewards.counts import RewardCounts
from vrjax.rewards.custom import load_reward
from vrjax.rewards.evidence import EvidenceReward
from vrjax.rewards.format import format_reward
from vrjax.rewards.reward import Reward, RewardFunction, RewardItem, RewardPrompt, RewardRecord
from vrjax.rewards.scoring import RewardRunner

__all__ = [
    "CompositeReward",
    "EvidenceReward",
    "Judge",
    "JudgedAnswer",
    "Reward",
    "RewardBatch",
    "RewardCounts",
    "RewardFunction",
    "RewardItem",
    "RewardPrompt",
    "RewardRecord",
    "RewardRunner",
    "RuleAnswer",
    "eg_reasoner_reward",
    "format_reward",
    "load_reward",
]
