"""Counts how far the nodes of a pool are. Pure; one pass over the pool's nodes."""

from typing import NamedTuple

from gpuledger.deciders.rollout.budget import is_unavailable
from gpuledger.deciders.rollout.plan import AT_REST, DRAIN_STUCK
from gpuledger.domain.machineconfig.decided import ERROR
from gpuledger.domain.machineconfig.rows import ConfigNodeRow
from gpuledger.domain.machineconfig.state import APPLYING, DRAINING, FAILED, IDLE, Rollout

LISTED_MAX = 10
"""How many nodes a condition names, the first ones by name."""


class Counts(NamedTuple):
    """The nodes of a pool by how far they are, each list by name; `revisions` is what they have."""

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
    unavailable: int
    revisions: set[str | None]


def counts_of(state: Rollout, pool: str, target: str | None) -> Counts:
    """How far the nodes of a pool are. Of a paused one, none counts as unavailable."""
    found = (state.node.get(node) for node in state.membership.members(pool))
    rows = [row for row in found if row is not None]
    definition = state.definition(pool)
    is_paused = definition is not None and definition.paused
    return Counts(
        len(rows),
        sum(_is_ready(row, target) for row in rows),
        sum(target is not None and row.current_revision == target for row in rows),
        sum(row.phase == APPLYING for row in rows),
        sum(row.cordoned for row in rows),
        sum(row.reboot_pending for row in rows),
        [row.node for row in rows if row.phase == DRAINING],
        [row for row in rows if row.phase == FAILED or row.agent_state == ERROR],
        [row.node for row in rows if row.phase == DRAINING and row.reason == DRAIN_STUCK],
        [row.node for row in rows if len(state.membership.pools_of(row.node)) > 1],
        0 if is_paused else sum(is_unavailable(state, row) for row in rows),
        {row.current_revision for row in rows},
    )


def listed(names: list[str]) -> str:
    """The first of many names, and how many more there are."""
    more = len(names) - LISTED_MAX
    return ", ".join(names[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def _is_ready(row: ConfigNodeRow, target: str | None) -> bool:
    has_target = target is not None and row.current_revision == target
    return has_target and row.phase == IDLE and row.agent_state in AT_REST
