"""Runs planned for machines that need not be at hand: every program compiled ahead of time, none run."""

from vrjax.planning.picture import draw_plan
from vrjax.planning.planner import Plan, make_plan
from vrjax.planning.topology import open_topology
from vrjax.planning.workload import AssumedVideo

__all__ = ["AssumedVideo", "Plan", "draw_plan", "make_plan", "open_topology"]
