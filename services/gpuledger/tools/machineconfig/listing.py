"""Rows of machine configuration as people list them: configurations, pools, rendered configurations, nodes. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from gpuledger.api.machine_config import ZONE_LABEL, ConfigPoolConditionType
from gpuledger.domain.machineconfig.rows import ConfigNodeRow, ConfigPoolRow, ConfigPoolStatusRow, MachineConfigRow
from gpuledger.events.machine_config import MachineConfigDefined
from gpuledger.tools.machineconfig.tables import ConfigTables, config_of, spec_of
from gpuledger.tools.queries.found_rows import RowDict

UNKNOWN: Final = "Unknown"
"""The status of a condition that nobody has decided yet."""


def config_rows(tables: ConfigTables) -> Iterator[RowDict]:
    """A row of each MachineConfig, by name."""
    used = _pools_by_source(tables)
    for name in sorted(tables.configs):
        yield _config_row(tables.configs[name], used.get(name, []))


def _config_row(row: MachineConfigRow, pools: list[str]) -> RowDict:
    definition = MachineConfigDefined.model_validate_json(row.definition)
    return {
        "name": row.name,
        "priority": row.priority,
        "files": [one.path for one in definition.files],
        "units": [one.name for one in definition.units],
        "reboot_required": definition.reboot_required,
        "reboot_reason": definition.reboot_reason or None,
        "pools": pools,
        "problems": list(definition.problems),
        "labels": dict(definition.labels),
        "generation": row.generation,
        "uid": row.uid,
        "changed_at": row.changed_at,
    }


def _pools_by_source(tables: ConfigTables) -> dict[str, list[str]]:
    """By MachineConfig, the pools whose target it went into."""
    used = dict[str, list[str]]()
    for pool in sorted(tables.pools):
        target = tables.rendered.get(tables.target(pool) or "")
        for source in config_of(target).sources if target is not None else ():
            used.setdefault(source.name, []).append(pool)
    return used


def pool_rows(tables: ConfigTables) -> Iterator[RowDict]:
    """A row of each MachineConfigPool, by name."""
    for name in sorted(tables.pools):
        yield pool_row(tables.pools[name], tables.statuses.get(name))


def pool_row(row: ConfigPoolRow, status: ConfigPoolStatusRow | None) -> RowDict:
    """A pool with its counters and conditions; of a pool of which nothing is decided yet there are none."""
    spec, conditions = spec_of(row), conditions_of(status)
    return {
        "name": row.name,
        "config": status and status.current_revision,
        "target": status and status.target_revision,
        "last_successful": status and status.last_successful_revision,
        "updated": _is_updated(status),
        "updating": _status_of(conditions, ConfigPoolConditionType.UPDATING),
        "degraded": _status_of(conditions, ConfigPoolConditionType.DEGRADED),
        "paused": row.paused,
        "pinned": spec.pinned_revision,
        "machines": status and status.machine_count,
        "ready": status and status.ready_count,
        "updated_machines": status and status.updated_count,
        "updating_machines": status and status.updating_count,
        "degraded_machines": status and status.degraded_count,
        "cordoned": status and status.cordoned_count,
        "draining": status and status.draining_count,
        "pending_reboots": status and status.pending_reboot_count,
        "unavailable": status and status.unavailable,
        "max_unavailable": status and status.max_unavailable,
        "waits_since": row.waits_since,
        "problem": row.problem or None,
        "generation": row.generation,
        "observed_generation": status and status.observed_generation,
        "conditions": conditions,
        "uid": row.uid,
        "changed_at": status.changed_at if status is not None else row.changed_at,
    }


def conditions_of(status: ConfigPoolStatusRow | None) -> list[dict[str, Any]]:
    """The conditions of a pool, as decided last."""
    return [] if status is None else list(orjson.loads(status.conditions))


def _is_updated(status: ConfigPoolStatusRow | None) -> str:
    if status is None or status.target_revision is None:
        return UNKNOWN
    return str(status.updated_count == status.machine_count)


def _status_of(conditions: list[dict[str, Any]], kind: str) -> str:
    return next((one["status"] for one in conditions if one["type"] == kind), UNKNOWN)


def rendered_rows(tables: ConfigTables) -> Iterator[RowDict]:
    """A row of each rendered configuration, by pool, the newest first."""
    for pool in sorted({row.pool for row in tables.rendered.values()}):
        yield from history_rows(tables, pool)


def history_rows(tables: ConfigTables, pool: str) -> Iterator[RowDict]:
    """The rendered configurations of a pool with who has them, the newest first."""
    row, nodes, history = tables.pools.get(pool), tables.nodes_of(pool), tables.history(pool)
    target = None if row is None else tables.target(pool)
    pinned = None if row is None else spec_of(row).pinned_revision
    for one in history:
        config = config_of(one)
        has = [node.node for node in nodes if node.current_revision == one.name]
        yield {
            "name": one.name,
            "pool": pool,
            "revision": one.revision,
            "place": one.place,
            "role": _role(one.name, target, pinned),
            "files": len(config.files),
            "units": len(config.units),
            "reboot_required": config.reboot_required,
            "sources": [source.name for source in config.sources],
            "nodes": len(has),
            "desired": sum(node.desired_revision == one.name for node in nodes),
            "has": has,
            "config_hash": one.config_hash,
            "rendered_at": one.rendered_at,
        }


def _role(name: str, target: str | None, pinned: str | None) -> str | None:
    if name == pinned:
        return "pinned"
    return "target" if name == target else None


def node_rows(tables: ConfigTables, pool: str) -> list[RowDict]:
    """The nodes of a pool and how far each is: those in flight first, then those that wait, then the rest."""
    target = tables.target(pool)
    rows = [node_row(one, target) for one in tables.nodes_of(pool)]
    return sorted(rows, key=lambda row: (_URGENCY.get(str(row["phase"]), 0), row["updated"], row["node"]))


_URGENCY: Final[Mapping[str, int]] = {"Failed": -3, "Applying": -2, "Draining": -1}


def node_row(row: ConfigNodeRow, target: str | None) -> RowDict:
    """A node as a line of its pool's page."""
    labels = orjson.loads(row.labels or "{}")
    return {
        "node": row.node,
        "zone": labels.get(ZONE_LABEL),
        "phase": row.phase,
        "since": row.since,
        "current": row.current_revision,
        "desired": row.desired_revision,
        "updated": target is not None and row.current_revision == target,
        "agent": row.agent_state,
        "cordoned": row.cordoned or row.unschedulable,
        "drain_since": row.drain_started_at,
        "retries": row.drain_retries,
        "reboot_pending": row.reboot_pending,
        "reason": row.reason or None,
        "message": row.message or row.last_error or None,
    }
