"""Rows of machine configuration as the service `rollout` keeps them, for tests of what tools make of them."""

from collections.abc import Iterable
from typing import Any

import orjson

from gpuledger.domain.machineconfig.rows import (
    ConfigNodeRow,
    ConfigPoolRow,
    ConfigPoolStatusRow,
    MachineConfigRow,
    RenderedConfigRow,
)
from gpuledger.events.machine_config import (
    MachineConfigDefined,
    MachineConfigPoolChanged,
    MachineConfigPoolDefined,
    MachineConfigRendered,
)
from gpuledger.events.pool import LabelSelector
from gpuledger.tools.machineconfig.tables import ConfigTables
from support.config_rollouts import POOL
from support.events import hour

EVERYTHING = LabelSelector()


def config_row(name: str, at: float = 0, **fields: Any) -> MachineConfigRow:
    """A MachineConfig."""
    data = MachineConfigDefined(uid=f"uid-{name}", **fields)
    return MachineConfigRow(name, data.uid, data.generation, data.priority, data.model_dump_json(), hour(at))


def pool_row(name: str = POOL, **fields: Any) -> ConfigPoolRow:
    """A pool that selects everything."""
    data = MachineConfigPoolDefined(
        uid=f"uid-{name}", **{"node_selector": EVERYTHING, "config_selector": EVERYTHING} | fields
    )
    return ConfigPoolRow(name, data.uid, data.generation, data.model_dump_json(), data.paused, None, "", hour(0))


def rendered_row(data: MachineConfigRendered, place: int, pool: str = POOL) -> RenderedConfigRow:
    """A rendered configuration, by the hour of its place."""
    return RenderedConfigRow(
        data.name, pool, data.revision, data.config_hash, data.model_dump_json(), place, hour(place)
    )


def status_row(data: MachineConfigPoolChanged, at: float = 0, pool: str = POOL) -> ConfigPoolStatusRow:
    """What was decided about a pool."""
    fields = data.model_dump(mode="json")
    fields |= {"pool": pool, "conditions": orjson.dumps(fields["conditions"]).decode(), "changed_at": hour(at)}
    return ConfigPoolStatusRow(**{name: fields[name] for name in ConfigPoolStatusRow._fields})


def node_row(node: str, current: str | None = None, **fields: Any) -> ConfigNodeRow:
    """A node of the pool that nothing happens to."""
    found: dict[str, Any] = {
        "node": node,
        "uid": f"uid-{node}",
        "created": hour(0),
        "labels": "{}",
        "unschedulable": False,
        "current_revision": current,
        "agent_state": "done" if current else None,
        "last_error": "",
        "reboot_pending": False,
        "reported_at": None,
        "observed_at": hour(0),
        "pool": POOL,
        "decided_pool": POOL,
        "desired_revision": current,
        "desired_set_at": None,
        "cordoned": False,
        "drain_started_at": None,
        "drain_retries": 0,
        "phase": "Idle",
        "reason": "",
        "message": "",
        "since": hour(0),
        "agent_revision": None,
        "annotations": "{}",
        "labelled_at": None,
        "confirms_after": None,
        "decided_at": None,
    }
    return ConfigNodeRow(**found | fields)


def tables_of(
    *,
    configs: Iterable[MachineConfigRow] = (),
    pools: Iterable[ConfigPoolRow] = (),
    rendered: Iterable[RenderedConfigRow] = (),
    statuses: Iterable[ConfigPoolStatusRow] = (),
    nodes: Iterable[ConfigNodeRow] = (),
) -> ConfigTables:
    """Tables with these rows."""
    return ConfigTables(
        {row.name: row for row in configs},
        {row.name: row for row in pools},
        {row.name: row for row in rendered},
        {row.pool: row for row in statuses},
        {row.node: row for row in nodes},
    )
