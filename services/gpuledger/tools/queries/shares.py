"""Shared devices and who holds what of them, as the ledger has it: now, or at a time in the past."""

from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.db.engine import AsyncConnection
from gpuledger.db.json_columns import read_json_as_text
from gpuledger.domain.histories import SHARED_ALLOCATIONS
from gpuledger.domain.sharing.history import pod_at
from gpuledger.domain.sharing.rows import (
    SHARED_CHECKPOINTS,
    SHARED_CHECKPOINTS_HISTORY,
    SHARED_NODE,
    SHARED_NODE_HISTORY,
    SHARED_POD,
    SHARED_POD_FACT,
    SharedCheckpoints,
    SharedCheckpointsVersion,
    SharedNode,
    SharedNodeVersion,
    SharedPod,
    SharedPodFact,
)
from gpuledger.domain.sharing.state import Sharing
from gpuledger.domain.table import TableSpec
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections, read
from gpuledger.tools.queries.rows import LIVE, ROWS_SETTINGS, check_kept

PROJECTION: Final = "shares"

_OF_NAME: Final = """
uid = (SELECT uid FROM {live}.shared_pod WHERE pod = %(pod)s AND first_at <= coalesce(%(at)s::timestamptz, 'infinity')
       ORDER BY first_at DESC LIMIT 1)
"""
_PODS_NOW: Final = f"over_at IS NULL OR {_OF_NAME}"
_THEN: Final = "valid_from <= %(at)s AND (valid_to IS NULL OR valid_to > %(at)s)"
_PODS_THEN: Final = f"first_at <= %(at)s AND (over_at IS NULL OR over_at > %(at)s OR {_OF_NAME})"
_FACTS_THEN: Final = f"""
happened_at <= %(at)s AND (over_at IS NULL OR over_at > %(at)s OR {_OF_NAME}) ORDER BY happened_at, uid, kind
"""


class RecordedShares(NamedTuple):
    """What nodes share and pods hold, and the latest pod of a name, which may be over; None where there is none."""

    state: Sharing
    pod: SharedPod | None


async def recorded_shares(backend: Backend, pod: str, at: datetime | None = None) -> RecordedShares:
    """The state now or at a time, with the pod of a name, NAMESPACE/NAME.

    Raises:
        RequestError: the time is not kept.
    """
    await bring_current(backend, named_projections([PROJECTION]))

    async def ask(connection: AsyncConnection) -> RecordedShares:
        if at is None:
            return await _now(connection, pod)
        await check_kept(connection, PROJECTION, SHARED_ALLOCATIONS, at)
        return await _then(connection, pod, at)

    return await read(backend, ask, application_name="gpuledger why", settings=ROWS_SETTINGS)


async def _now(connection: AsyncConnection, pod: str) -> RecordedShares:
    values = {"pod": pod, "at": None}
    nodes = await _rows(connection, SHARED_NODE, "true", values)
    pods = await _rows(connection, SHARED_POD, _PODS_NOW, values)
    found = _recorded(map(SharedNode._make, nodes), map(SharedPod._make, pods), pod)
    checkpoints = await _rows(connection, SHARED_CHECKPOINTS, "true", values)
    found.state.shared_checkpoints.load(map(SharedCheckpoints._make, checkpoints))
    return found


async def _then(connection: AsyncConnection, pod: str, at: datetime) -> RecordedShares:
    values = {"pod": pod, "at": at}
    versions = map(SharedNodeVersion._make, await _rows(connection, SHARED_NODE_HISTORY, _THEN, values))
    facts: dict[str, list[SharedPodFact]] = {}
    for one in map(SharedPodFact._make, await _rows(connection, SHARED_POD_FACT, _FACTS_THEN, values)):
        facts.setdefault(one.uid, []).append(one)
    pods = map(SharedPod._make, await _rows(connection, SHARED_POD, _PODS_THEN, values))
    found = _recorded(map(_node_of, versions), (_as_of(row, facts.get(row.uid, [])) for row in pods), pod)
    checkpoints = map(
        SharedCheckpointsVersion._make, await _rows(connection, SHARED_CHECKPOINTS_HISTORY, _THEN, values)
    )
    found.state.shared_checkpoints.load(
        SharedCheckpoints(one.node, one.checkpoints, one.valid_from, one.position) for one in checkpoints
    )
    return found


def _node_of(one: SharedNodeVersion) -> SharedNode:
    return SharedNode(
        one.node,
        one.present,
        one.model,
        one.partition_policy,
        one.devices,
        one.not_shared,
        one.valid_from,
        one.position,
    )


def _as_of(row: SharedPod, facts: list[SharedPodFact]) -> SharedPod:
    """The pod as these facts have it, without what only a later fact has said."""
    then = pod_at(row, facts)
    if then.released_at != row.released_at:
        then = then._replace(release_reason=None, release_message="")
    return then if then.observed_at == row.observed_at else then._replace(unreadable=None)


def _recorded(nodes: Any, pods: Any, name: str) -> RecordedShares:  # noqa: ANN401 - iterables of rows
    state = Sharing()
    state.shared_node.load(nodes)
    state.shared_pod.load(pods)
    named = [one for one in state.shared_pod.rows.values() if one.pod == name]
    return RecordedShares(state, max(named, key=lambda one: (one.first_at is not None, one.first_at), default=None))


async def _rows(
    connection: AsyncConnection, spec: TableSpec[Any], which: str, values: dict[str, Any]
) -> list[tuple[Any, ...]]:
    where = which.format(live=LIVE)
    query = f"SELECT {', '.join(spec.columns)} FROM {LIVE}.{spec.name} WHERE {where}"  # noqa: S608 - names of ours
    cursor = connection.cursor()
    read_json_as_text(cursor)
    await cursor.execute(query.encode(), values)
    return list(await cursor.fetchall())
