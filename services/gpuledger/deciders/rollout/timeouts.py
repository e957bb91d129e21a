"""Decides what follows when nothing has come for too long: renderings that waited, drains, agents, releases. Pure.

`due` records only that a wait is over. What follows is decided where that stands in the log, if the wait goes on there:
a report that slipped in before has ended it.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple

from gpuledger.api.machine_config import DRAIN_RETRY_MIN_S, AgentState, drain_retry_s
from gpuledger.deciders.rollout.decide import Deciding
from gpuledger.deciders.rollout.drains import GIVEN_BACK, is_lost, is_over_time, request, retried, stuck
from gpuledger.deciders.rollout.plan import APPLY_TIMEOUT, DRAIN_STUCK, plan_of
from gpuledger.domain.fact import Fact
from gpuledger.domain.machineconfig.rows import AT_REST, ConfigMaintenanceRow, ConfigNodeRow
from gpuledger.domain.machineconfig.state import APPLYING, DRAINING, OWNER_PREFIX, Rollout
from gpuledger.domain.maintenance.lapses import INTENT_AGE_MAX
from gpuledger.events.machine_config import ConfigWait, MachineConfigPoolDefined, MachineConfigWaitEnded
from gpuledger.events.maintenance import NodeMaintenanceReleased
from gpuledger.projection.definition import Decision

WAITS_PER_CALL_MAX: Final = 1000
"""The most ends of waits that are recorded per call; the others follow with the next call."""


class Wait(NamedTuple):
    """A wait about a pool, or about a node of it, and when it is over."""

    kind: ConfigWait
    pool: str
    node: str | None
    since: datetime
    ends_at: datetime


def on_due(state: Rollout, now: datetime) -> Iterator[Decision]:
    """Record which waits are over."""
    over = (wait for wait in waits(state) if wait.ends_at <= now)
    for wait in islice(over, WAITS_PER_CALL_MAX):
        data = MachineConfigWaitEnded(wait=wait.kind, node=wait.node, since=wait.since)
        cause = f"{wait.kind}/{wait.pool}/{wait.node or ''}/{wait.since.isoformat()}/{wait.ends_at.isoformat()}"
        yield Decision(cause, None, wait.pool, now, data)


def on_ended(state: Rollout, fact: Fact, data: MachineConfigWaitEnded) -> Iterator[Decision]:
    """The decisions that follow from the end of a wait, at its place in the log."""
    pool, deciding = fact.event.subject, Deciding(state, fact)
    found = _pool_waits(state, pool) if data.node is None else _node_waits(state, data.node)
    ended = (data.wait, pool, data.node, data.since)
    if not any(wait[:4] == ended and wait.ends_at <= fact.event.time for wait in found):
        return
    if data.node is None:
        state.touch_pool(pool)
        yield from deciding.rendered(pool)
    else:
        yield from _ended(state, deciding, data.wait, data.node)
    yield from deciding.touched()


def _ended(state: Rollout, deciding: Deciding, kind: ConfigWait, node: str) -> Iterator[Decision]:
    state.touch_node(node)
    held, row = state.maintenance.get(node), state.node.get(node)
    if kind == "Release" and held is not None:
        yield from _release_again(state, deciding, held)
    elif kind == "ApplyTimeout" and row is not None:
        yield from _apply_timed_out(state, deciding, row)
    elif row is not None:
        yield from _drain_goes_on(state, deciding, row)


def _drain_goes_on(state: Rollout, deciding: Deciding, row: ConfigNodeRow) -> Iterator[Decision]:
    held, definition = state.maintenance.get(row.node), state.definition(row.decided_pool or "")
    if definition is None:
        return
    plan = plan_of(row)._replace(drain_retries=row.drain_retries + 1)
    is_stuck = is_over_time(row, definition, deciding.at)
    yield deciding.about(row.node, retried(row, held, is_stuck=is_stuck))
    yield from deciding.node(row.node, stuck(plan, definition) if is_stuck else plan)
    if is_lost(held) and row.decided_pool is not None:
        yield deciding.about(row.node, request(state, row.decided_pool))


def _apply_timed_out(state: Rollout, deciding: Deciding, row: ConfigNodeRow) -> Iterator[Decision]:
    """An agent that has to confirm that it is at rest, and says nothing else for so long, had nothing to do."""
    has_desired = row.current_revision == row.desired_revision and row.agent_state in AT_REST
    if row.phase != APPLYING or has_desired:
        state.put_node(row._replace(confirms_after=None))
        return
    definition = state.definition(row.decided_pool or "")
    limit = "" if definition is None else f" within {definition.apply_timeout_s} s"
    message = (
        f"The agent has not reported {row.desired_revision} as done{limit}; it says {row.agent_state or 'nothing'}."
    )
    yield from deciding.node(row.node, plan_of(row).failed(APPLY_TIMEOUT, message))


def _release_again(state: Rollout, deciding: Deciding, held: ConfigMaintenanceRow) -> Iterator[Decision]:
    """A node that nobody has given back; one that nobody has set aside either, as it seems, needs nothing more."""
    row = state.node.get(held.node)
    if row is None:
        state.delete_maintenance(held.node)
    elif not held.is_answered and held.failed_at is None and not row.unschedulable:
        state.put_maintenance(held._replace(may_be_cordoned=False))
    else:
        yield deciding.about(held.node, NodeMaintenanceReleased(owner=held.owner, reason=GIVEN_BACK))


def waits(state: Rollout) -> Iterator[Wait]:
    """The waits that are under way."""
    for pool in sorted(state.pool.rows):
        yield from _pool_waits(state, pool)
    for node in state.waiting():
        yield from _node_waits(state, node)


def _pool_waits(state: Rollout, pool: str) -> Iterator[Wait]:
    row, definition = state.pool.get(pool), state.definition(pool)
    if row is not None and definition is not None and row.waits_since is not None:
        yield _wait("Debounce", pool, None, row.waits_since, definition.debounce_s)


def _node_waits(state: Rollout, node: str) -> Iterator[Wait]:
    row, held = state.node.get(node), state.maintenance.get(node)
    if held is not None and held.awaits_release():
        yield from _release_waits(state, held)
    definition = None if row is None else state.definition(row.decided_pool or "")
    if row is None or definition is None or row.decided_pool is None:
        return
    pool = row.decided_pool
    if row.phase == DRAINING and row.drain_started_at is not None:
        retries_since = held and held.retried_at
        since, interval_s = retries_since or row.drain_started_at, _retry_s(definition)
        yield _wait("DrainRetry", pool, node, since, interval_s)
        if row.reason != DRAIN_STUCK:
            yield _wait("DrainTimeout", pool, node, row.drain_started_at, definition.drain_timeout_s)
    if row.phase == APPLYING and row.desired_set_at is not None:
        yield _wait("ApplyTimeout", pool, node, row.desired_set_at, _apply_s(row, definition))
    elif not row.is_confirmed() and row.confirms_after is not None:
        yield _wait("ApplyTimeout", pool, node, row.confirms_after, definition.apply_timeout_s)


def _apply_s(row: ConfigNodeRow, definition: MachineConfigPoolDefined) -> int:
    """How long an agent may take; one that is to reboot waits until it may, and then takes its time."""
    waits_s = definition.reboot_min_interval_s if row.agent_state == AgentState.REBOOTING else 0
    return waits_s + definition.apply_timeout_s


def _release_waits(state: Rollout, held: ConfigMaintenanceRow) -> Iterator[Wait]:
    """A release that came to nothing is made again after a while.

    A request of which nothing was heard before its release is not carried out any more once an intent is too old.
    """
    pool = held.owner.removeprefix(OWNER_PREFIX)
    definition = state.definition(pool)
    if held.failed_at is not None:
        interval_s = DRAIN_RETRY_MIN_S if definition is None else _retry_s(definition)
        yield _wait("Release", pool, held.node, held.failed_at, interval_s)
    elif not held.is_answered and held.released_at is not None:
        yield _wait("Release", pool, held.node, held.released_at, int(INTENT_AGE_MAX.total_seconds()))


def _retry_s(definition: MachineConfigPoolDefined) -> int:
    return drain_retry_s(definition.drain_timeout_s, definition.drain_retry_s)


def _wait(kind: ConfigWait, pool: str, node: str | None, since: datetime, seconds: int) -> Wait:
    return Wait(kind, pool, node, since, since + timedelta(seconds=seconds))
