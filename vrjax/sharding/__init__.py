"""Where arrays live: the device mesh and the rules that map logical axes to it."""

from vrjax.sharding.local import local_mesh, processes_of, row_holders, row_share, to_local
from vrjax.sharding.mesh import MESH_AXES, is_cpu, make_mesh
from vrjax.sharding.placed_model import Placement, placement_of
from vrjax.sharding.row_attention import RowAttention, check_form, make_row_attention
from vrjax.sharding.rules import Rules, Sharder, map_parameters, parameter_shardings, rollout_rules, spec, update_rules

__all__ = [
    "MESH_AXES",
    "Placement",
    "RowAttention",
    "Rules",
    "Sharder",
    "check_form",
    "is_cpu",
    "local_mesh",
    "make_mesh",
    "make_row_attention",
    "map_parameters",
    "parameter_shardings",
    "placement_of",
    "processes_of",
    "rollout_rules",
    "row_holders",
    "row_share",
    "spec",
    "to_local",
    "update_rules",
]
