"""Who holds devices of nodes now, and how long holders of the past had theirs, by the read model of allocations."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.db.engine import AsyncConnection
from gpuledger.readmodels.projections import AllocationsProjection
from gpuledger.tools.queries.backend import Backend, bring_current, read

LENGTHS_MAX: Final = 10_000
"""Of how many allocations of the past the lengths are looked at, those that ended last."""

_HELD: Final = """
    SELECT node, device, min(since), array_agg(DISTINCT namespace || '/' || pod ORDER BY namespace || '/' || pod)
    FROM gpuledger_live.container_allocation WHERE node = ANY(%s) GROUP BY node, device ORDER BY node, device
"""
_LENGTHS: Final = """
    SELECT extract(EPOCH FROM valid_to - valid_from)::float8 FROM (
        SELECT allocation, min(valid_from) AS valid_from, max(valid_to) AS valid_to
        FROM gpuledger_live.container_allocation_history
        GROUP BY allocation HAVING bool_and(valid_to IS NOT NULL)
        ORDER BY max(valid_to) DESC LIMIT %s
    ) AS ended
"""


class HeldDevice(NamedTuple):
    """A device that pods hold, each as NAMESPACE/NAME, and since when one of them does."""

    node: str
    device: str
    since: datetime
    pods: tuple[str, ...]


async def held_devices(backend: Backend, nodes: Sequence[str]) -> dict[str, list[HeldDevice]]:
    """The devices of these nodes that are held now, by node."""
    await bring_current(backend, [AllocationsProjection()])

    async def ask(connection: AsyncConnection) -> dict[str, list[HeldDevice]]:
        found: dict[str, list[HeldDevice]] = {}
        for node, device, since, pods in await (await connection.execute(_HELD.encode(), [list(nodes)])).fetchall():
            found.setdefault(node, []).append(HeldDevice(node, device, since, tuple(pods)))
        return found

    return await read(backend, ask, application_name="gpuledger config")


async def allocation_lengths(backend: Backend) -> list[float]:
    """How long allocations that have ended lasted, in seconds, in ascending order."""
    await bring_current(backend, [AllocationsProjection()])

    async def ask(connection: AsyncConnection) -> list[float]:
        found = await (await connection.execute(_LENGTHS.encode(), [LENGTHS_MAX])).fetchall()
        return sorted(max(0.0, seconds) for (seconds,) in found)

    return await read(backend, ask, application_name="gpuledger what-if")
