"""Requests the maintenance of nodes and releases them, in the name of the user of the terminal; and lists them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import orjson

from gpuledger.db.engine import AsyncConnection
from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.domain.maintenance.rows import NOT_ISOLATED, MaintenanceRequest, NodeIsolation
from gpuledger.domain.maintenance.state import Maintenance, isolation_of
from gpuledger.domain.table import Table
from gpuledger.edge.kube.schema.object_names import dns_subdomain_problem, label_value_problem, qualified_name_problem
from gpuledger.events.maintenance import (
    Isolation,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
    NodeTaint,
)
from gpuledger.events.position import Offset, Position
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.drain_rows import drain_status, drain_word
from gpuledger.tools.errors import RequestError
from gpuledger.tools.operators import operator, record
from gpuledger.tools.queries.backend import Backend, current, folded_past
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.rows import row_of, rows_where

LAPSED_DETAIL: Final = "Nothing came of it in time. Ask for it again, such as with `gpuledger node cordon`"

NO_NODE: Final = "NoNode"
PENDING: Final = "Pending"
"""States of a request that no outcome gives: there is no Node of the name, or nothing came of the decision yet."""

LAPSED: Final = "Lapsed"
"""The state of a request of which nothing came in time: its owner has to make it again."""


def own_name() -> str:
    """The owner of the requests that the user of the terminal makes."""
    return operator().removeprefix("/")


def check_node(name: str) -> None:
    """Return if a Node may have this name; raises RequestError if not."""
    _check(f"{name!r} as the name of a node", dns_subdomain_problem(name))


def check_taint(taint: NodeTaint) -> NodeTaint:
    """The taint, if Kubernetes takes it; raises RequestError if not."""
    _check(f"The key {taint.key!r} of the taint", qualified_name_problem(taint.key))
    _check(f"The value {taint.value!r} of the taint", label_value_problem(taint.value))
    return taint


def check_label(key: str, value: str) -> None:
    """Return if Kubernetes takes the label; raises RequestError if not."""
    _check(f"The key {key!r} of the label", qualified_name_problem(key))
    _check(f"The value {value!r} of the label", label_value_problem(value))


def _check(what: str, problem: str | None) -> None:
    if problem is not None:
        raise RequestError(f"{what} is not valid: {problem}", "Correct it")


async def request(backend: Backend, node: str, data: NodeMaintenanceRequested) -> tuple[Position, bool]:
    """Record a request; returns its position, and whether there is such a Node by now."""
    state = await current_state(backend)
    found = state.node.get(node)
    return await _record(backend, state, node, data), found is not None and found.uid is not None


async def release(backend: Backend, node: str, data: NodeMaintenanceReleased) -> tuple[Position, list[str]]:
    """Record a release; returns its position, and the owners who still need the node.

    Raises:
        RequestError: the owner has no request about the node.
    """
    state = await current_state(backend)
    owners = [row.owner for row in state.requests_about(node)]
    isolation = state.isolation.get(node)
    is_open = isolation is not None and isolation.ended_at() is None and not owners
    if data.owner not in owners and not is_open:
        hint = f"These have: {', '.join(owners)}. Give one as --owner" if owners else "Nobody has"
        raise RequestError(f"{data.owner} has no request about node {node}", hint)
    return await _record(backend, state, node, data), [owner for owner in owners if owner != data.owner]


async def _record(
    backend: Backend, state: Maintenance, node: str, data: NodeMaintenanceRequested | NodeMaintenanceReleased
) -> Position:
    """Record a fact, which is no earlier than the last one of its owner: that one may have another clock's time."""
    before, now = state.request.get((node, data.owner)), system_clock()
    time = now if before is None else max(now, before.changed_at)
    return await record(backend.ledger, node, data, time)


async def current_state(backend: Backend) -> Maintenance:
    """The requests, Nodes and decisions of now."""
    state: Maintenance = await current(backend, MaintenanceProjection())
    return state


async def recorded_state(backend: Backend, until: Offset) -> Maintenance:
    """The same as it was known at a position."""
    state = (await folded_past(backend, MaintenanceProjection(), until)).state
    assert isinstance(state, Maintenance)
    return state


async def maintenance_of(connection: AsyncConnection, node: str) -> list[RowDict]:
    """The rows about one node, as `request_rows` has them."""
    state = Maintenance()
    tables: tuple[Table[Any], ...] = (state.request, state.node, state.isolation, state.drain)
    for table in tables:
        table.load(row_of(table.spec, row) for row in await rows_where(connection, table.spec, {"node": node}))
    return list(request_rows(state))


def request_rows(state: Maintenance) -> Iterator[RowDict]:
    """A row of each request in force, and one without an owner of each node that is not given back yet."""
    nodes = {row.node for row in state.request.rows.values()} | state.isolation.rows.keys()
    for node in sorted(nodes):
        isolation, requests = state.isolation.get(node), state.requests_about(node)
        for one in requests:
            yield _row(node, one, isolation_of(one.isolation), _status(state, node, isolation))
        if not requests and isolation is not None and isolation.ended_at() is None:
            yield _row(node, None, isolation_of(isolation.isolation), _status(state, node, isolation))


def _row(node: str, one: MaintenanceRequest | None, isolation: Isolation, status: RowDict) -> RowDict:
    return {
        "node": node,
        "owner": None if one is None else one.owner,
        "reason": None if one is None else one.reason,
        "requested_at": None if one is None else one.requested_at,
        "expires_at": None if one is None else one.expires_at,
        "cordon": isolation.unschedulable,
        "taints": [f"{taint.key}={taint.value}:{taint.effect}" for taint in isolation.taints],
        "labels": [f"{key}={value}" for key, value in isolation.labels.items()],
        "devices": [] if one is None else list(one.drained_devices()),
        "message": None if one is None else one.message or None,
        **status,
        **({} if one is None else _own_status(one, has_node=status["state"] != NO_NODE)),
    }


def _own_status(one: MaintenanceRequest, *, has_node: bool) -> RowDict:
    """What became of this request alone, where that is something else."""
    lapsed: RowDict = {"state": LAPSED, "detail": LAPSED_DETAIL} if one.has_lapsed else {}
    if has_node and one.drained_devices() and one.isolation == NOT_ISOLATED and not one.has_lapsed:
        lapsed = {"state": None, "settled_at": None, "detail": None}  # Nothing is to be done to the Node itself.
    return {**lapsed, **({"drain": drain_word(one.drain_result)} if one.drain_result else {})}


def _status(state: Maintenance, node: str, isolation: NodeIsolation | None) -> RowDict:
    """What became of the last decision about a node."""
    found, settled_at, detail = state.node.get(node), None, None
    word = NO_NODE if found is None or found.uid is None else PENDING
    was: object = None
    if isolation is not None and isolation.result is not None:
        word, settled_at = isolation.result.capitalize(), isolation.settled_at
        detail = ": ".join(filter(None, (isolation.reason, isolation.message))) or None
        was = orjson.loads(isolation.was)
    return {"state": word, "settled_at": settled_at, "detail": detail, "was": was, **drain_status(state, node)}


def expiry(now: datetime, ends: datetime | None) -> datetime | None:
    """When a request ends.

    Raises:
        RequestError: that has passed already.
    """
    if ends is not None and ends <= now:
        raise RequestError(f"The request would have ended at {ends.isoformat()}", "Name a time to come, such as 4h")
    return ends
