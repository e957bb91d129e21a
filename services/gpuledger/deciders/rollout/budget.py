"""How many nodes of a pool may be unavailable, and which are. Pure.

A node takes its place in the budget when its maintenance is requested, and has it until it is given back: not from what
is seen of it, which comes later. Who else has cordoned a node takes a place as well.
"""

from gpuledger.domain.machineconfig.rows import AT_WORK, ConfigNodeRow
from gpuledger.domain.machineconfig.state import IDLE, Rollout


def max_unavailable(given: str, machine_count: int) -> int:
    """How many nodes may be unavailable: a number, or a percentage of the pool's nodes, rounded up; 1 at least."""
    if not given.endswith("%"):
        return max(1, int(given))
    return max(1, -(-int(given[:-1]) * machine_count // 100))


def is_unavailable(state: Rollout, row: ConfigNodeRow) -> bool:
    """Whether nothing new runs on a node, or what it is to have is not what it has."""
    if row.unschedulable or row.phase != IDLE or row.agent_state in AT_WORK or not row.is_confirmed():
        return True
    if row.desired_revision is not None and row.desired_revision != row.current_revision:
        return True
    maintenance = state.maintenance.get(row.node)
    return maintenance is not None and maintenance.may_be_cordoned
