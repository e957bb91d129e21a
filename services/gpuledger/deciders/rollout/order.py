"""In which order the nodes of a pool are updated: zone by zone, the oldest first. Pure."""

from datetime import UTC, datetime
from typing import Any

import orjson

from gpuledger.api.machine_config import ZONE_LABEL
from gpuledger.domain.machineconfig.holding import holds_devices
from gpuledger.domain.machineconfig.rows import ConfigNodeRow
from gpuledger.domain.machineconfig.state import Rollout

_UNKNOWN_AGE = datetime.max.replace(tzinfo=UTC)


def order_of(state: Rollout, row: ConfigNodeRow, *, prefers_idle: bool) -> tuple[Any, ...]:
    """The place of a node: idle ones first where that is preferred, then by zone (those without last), age and name."""
    zone = orjson.loads(row.labels).get(ZONE_LABEL) or ""
    is_held = prefers_idle and holds_devices(state, row.node)
    return is_held, not zone, zone, row.created or _UNKNOWN_AGE, row.node
