"""What is measured of MachineConfigPools: how many nodes are how far, which conditions hold, and whose agent is silent.

It reads the rows of the service `rollout`, so that every replica reports the same, and decides nothing.
"""

from typing import Any, Final

import orjson
from prometheus_client import Gauge

from gpuledger.api.conditions import ConditionStatus
from gpuledger.compose.measuring import INTERVAL_S, keep_measuring
from gpuledger.db.lasting import LastingConnection

_PREFIX: Final = "gpuledger_machineconfigpool"
_POOL: Final = ("pool",)
_COUNTS: Final = tuple(
    Gauge(f"{_PREFIX}_{name}", text, _POOL)
    for name, text in (
        ("machines", "Nodes of the pool."),
        ("ready", "Nodes that have applied what they are to have."),
        ("updated", "Nodes that have the pool's target revision."),
        ("updating", "Nodes whose agents apply a revision."),
        ("degraded", "Nodes whose update has failed."),
        ("cordoned", "Nodes that the rollout has cordoned."),
        ("draining", "Nodes that pods are leaving for an update."),
        ("pending_reboot", "Nodes whose configuration needs a reboot that has not happened."),
        ("unavailable", "Nodes that count against maxUnavailable."),
        ("max_unavailable", "How many nodes may be unavailable at a time."),
        ("paused", "1 while the pool is paused."),
        ("silent", "Nodes that are to have a revision, and whose agent has never reported anything."),
    )
)
"""In the order of the query's columns."""

_CONDITION: Final = Gauge(f"{_PREFIX}_condition", "1 while it holds.", ("pool", "condition"))

_QUERY: Final = b"""
    SELECT state.pool, machine_count, ready_count, updated_count, updating_count, degraded_count, cordoned_count,
        draining_count, pending_reboot_count, unavailable, max_unavailable, paused::int,
        (
            SELECT count(*) FROM gpuledger_live.machine_config_node node
            WHERE node.decided_pool = state.pool AND desired_revision IS NOT NULL AND agent_state IS NULL
        ),
        conditions::text
    FROM gpuledger_live.machine_config_pool_status state
    JOIN gpuledger_live.machine_config_pool pool ON pool.name = state.pool
"""


async def measure_machine_configs(database_url: str, *, interval_s: float = INTERVAL_S) -> None:
    """Measure until cancelled; while PostgreSQL is away, and of pools that are gone, no values are served."""
    connection = LastingConnection(database_url, application_name="gpuledger machine config metrics")

    async def measure() -> None:
        cursor = await (await connection.get()).execute(_QUERY)
        rows = await cursor.fetchall()
        _clear()
        for pool, *counts, conditions in rows:
            _show(str(pool), counts, orjson.loads(conditions))

    try:
        await keep_measuring("machine-configs.not-measured", measure, _clear, interval_s=interval_s)
    finally:
        await connection.close()


def _show(pool: str, counts: list[int], conditions: list[dict[str, Any]]) -> None:
    for gauge, count in zip(_COUNTS, counts, strict=True):
        gauge.labels(pool).set(count)
    for one in conditions:
        _CONDITION.labels(pool, one["type"]).set(one["status"] == ConditionStatus.TRUE)


def _clear() -> None:
    for gauge in (*_COUNTS, _CONDITION):
        gauge.clear()
