"""Counts how far the nodes of a pool are. Pure; one pass over the pool's nodes, which each of their reports costs."""

from typing import Final, NamedTuple

from gpuledger.deciders.rollout.budget import is_unavailable
from gpuledger.deciders.rollout.plan import DRAIN_STUCK
from gpuledger.domain.machineconfig.decided import ERROR
from gpuledger.domain.machineconfig.rows import AT_REST, ConfigNodeRow
from gpuledger.domain.machineconfig.state import APPLYING, DRAINING, FAILED, IDLE, Rollout

LISTED_MAX: Final = 10
"""How many nodes a condition names, the first ones by name."""


class Counts(NamedTuple):
    """The nodes of a pool by how far they are, each list by name; `revisions` is what they have.

    `unavailable` are those that count as that, `waiting` those whose update may begin.
    """

    machines: int
    ready: int
    updated: int
    updating: int
    cordoned: int
    pending_reboot: int
    draining: list[str]
    degraded: list[ConfigNodeRow]
    stuck: list[str]
    overlapping: list[str]
    unavailable: set[str]
    waiting: list[ConfigNodeRow]
    revisions: set[str | None]


def counts_of(state: Rollout, pool: str, target: str | None) -> Counts:
    """How far the nodes of a pool are. Of a paused one, none counts as unavailable, and none waits."""
    definition, nodes = state.definition(pool), state.node.rows
    rows = [nodes[node] for node in state.membership.members(pool)]
    is_rolling = definition is not None and not definition.paused
    has_target = [row for row in rows if row.current_revision == target] if target is not None else []
    under_way = [row for row in rows if row.phase != IDLE]
    draining = [row for row in under_way if row.phase == DRAINING]
    return Counts(
        len(rows),
        sum(row.phase == IDLE and row.agent_state in AT_REST for row in has_target),
        len(has_target),
        sum(row.phase == APPLYING for row in under_way),
        sum(row.cordoned for row in under_way),
        sum(row.reboot_pending for row in rows),
        [row.node for row in draining],
        [row for row in rows if row.phase == FAILED or row.agent_state == ERROR],
        [row.node for row in draining if row.reason == DRAIN_STUCK],
        [row.node for row in rows if row.pool is None],
        {row.node for row in rows if is_unavailable(state, row)} if is_rolling else set(),
        [row for row in rows if _is_waiting(row, target)] if is_rolling else [],
        {row.current_revision for row in rows},
    )


def listed(names: list[str]) -> str:
    """The first of many names, and how many more there are."""
    more = len(names) - LISTED_MAX
    return ", ".join(names[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def _is_waiting(row: ConfigNodeRow, target: str | None) -> bool:
    """Whether a node waits for its update to begin: it belongs to this pool alone, and has something else."""
    return row.phase == IDLE and row.current_revision != target and row.pool is not None and target is not None
