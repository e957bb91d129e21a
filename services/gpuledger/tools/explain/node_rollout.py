"""Where a node stands in the rollout of its MachineConfigPool: what it has, what for it waits, and its turn. Pure."""

from datetime import datetime
from typing import Any, Final

from gpuledger.deciders.rollout.budget import max_unavailable
from gpuledger.deciders.rollout.counts import counts_of
from gpuledger.deciders.rollout.order import order_of
from gpuledger.domain.machineconfig.rows import ConfigNodeRow
from gpuledger.domain.machineconfig.state import APPLYING, DRAINING, FAILED, Rollout

Document = dict[str, Any]

NODES_SHOWN_MAX: Final = 5


def node_rollout(state: Rollout, node: str) -> Document | None:
    """Where the node stands; None where no pool selects it, and none has it in hand."""
    row, pools = state.node.get(node), state.membership.pools_of(node)
    if row is None or (not pools and row.decided_pool is None):
        return None
    home = state.home(node)
    return {
        "pools": list(pools),
        "target": None if home is None else state.target(home),
        "current": row.current_revision,
        "desired": row.desired_revision,
        "phase": row.phase,
        "since": row.since,
        "agent": row.agent_state,
        "answer": _answer(state, row, home),
    }


def with_rollout(document: Document, rollout: Document | None) -> Document:
    """The explanation of a node with where it stands in a rollout, which its answer says as well."""
    if rollout is None:
        return {**document, "rollout": None}
    return {**document, "rollout": rollout, "answer": f"{document['answer']}; {rollout['answer']}"}


def _answer(state: Rollout, row: ConfigNodeRow, home: str | None) -> str:
    """The sentence about a node."""
    match row.phase:
        case str(phase) if phase == DRAINING:
            return _draining(state, row)
        case str(phase) if phase == APPLYING:
            return _applying(row)
        case str(phase) if phase == FAILED:
            why = ": ".join(filter(None, (row.reason, row.message)))
            return f"it failed to get to {row.desired_revision}: {why}; it stays set aside until its agent gets there"
    if home is None:
        pools = state.membership.pools_of(row.node)
        return (
            f"it belongs to {len(pools)} pools, {', '.join(pools)}, so that nothing begins on it"
            if pools
            else "no pool selects it"
        )
    return _idle(state, row, home)


def _draining(state: Rollout, row: ConfigNodeRow) -> str:
    held = state.maintenance.get(row.node)
    text = f"it drains for pool {row.decided_pool} since {_text(row.drain_started_at)}"
    if row.drain_retries:
        text += f", and has not finished within {row.drain_retries} retry intervals"
    if held is None or not held.pods_left:
        return text
    return f"{text}; {held.pods_left} pods are left{f': {held.message}' if held.message else ''}"


def _applying(row: ConfigNodeRow) -> str:
    agent = f"its agent is {row.agent_state}" if row.agent_state else "its agent says nothing"
    error = f" ({row.last_error})" if row.last_error else ""
    return f"it is to have {row.desired_revision} since {_text(row.desired_set_at)}; {agent}{error}"


def _idle(state: Rollout, row: ConfigNodeRow, home: str) -> str:
    pool, definition, target = state.pool.get(home), state.definition(home), state.target(home)
    assert pool is not None, "a node's home is there"
    assert definition is not None, "a node's home is there"
    if target is None:
        return f"pool {home} rolls nothing out yet{f': {pool.problem}' if pool.problem else ''}"
    if row.current_revision == target:
        return f"it has {target}, as pool {home} rolls it out"
    if definition.paused:
        return f"it waits: pool {home} is paused"
    if row.reason:
        why = ": ".join(filter(None, (row.reason, row.message)))
        return f"it was given back ({why}), and waits for its turn{_turn(state, row.node, home)}"
    return f"it waits for its turn{_turn(state, row.node, home)}"


def _turn(state: Rollout, node: str, pool: str) -> str:
    """Its place among those that wait, and who has the places of the budget."""
    definition = state.definition(pool)
    assert definition is not None, "a node's home is there"
    counts = counts_of(state, pool, state.target(pool))
    waiting = sorted(counts.waiting, key=lambda row: order_of(state, row, prefers_idle=definition.prefers_idle))
    place = next((at for at, row in enumerate(waiting, 1) if row.node == node), None)
    most, busy = max_unavailable(definition.max_unavailable, counts.machines), sorted(counts.unavailable)
    where = "" if place is None else f", {place} of {len(waiting)} in the order of pool {pool}"
    if len(busy) < most:
        return f"{where}; the budget has a place for it"
    more = f" and {len(busy) - NODES_SHOWN_MAX} more" if len(busy) > NODES_SHOWN_MAX else ""
    return f"{where}: {len(busy)} of at most {most} nodes are unavailable, {', '.join(busy[:NODES_SHOWN_MAX])}{more}"


def _text(time: datetime | None) -> str:
    return "an unknown time" if time is None else time.isoformat(timespec="seconds").replace("+00:00", "Z")
