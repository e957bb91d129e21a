"""The tables of machine configuration, which the service `rollout` keeps, as tools look into them. Pure.

A tool that shows or computes something takes these, and never the state of the service.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpuledger.domain.fact import State
from gpuledger.domain.machineconfig.rows import (
    CONFIG_NODE,
    CONFIG_POOL,
    CONFIG_POOL_STATUS,
    MACHINE_CONFIG,
    RENDERED_CONFIG,
    ConfigNodeRow,
    ConfigPoolRow,
    ConfigPoolStatusRow,
    MachineConfigRow,
    RenderedConfigRow,
)
from gpuledger.domain.table import TableSpec
from gpuledger.events.machine_config import MachineConfigPoolDefined, MachineConfigRendered
from gpuledger.tools.errors import RequestError


class ConfigTables(NamedTuple):
    """Every row of machine configuration, each table by name of config, pool, rendered config, pool and node."""

    configs: Mapping[str, MachineConfigRow]
    pools: Mapping[str, ConfigPoolRow]
    rendered: Mapping[str, RenderedConfigRow]
    statuses: Mapping[str, ConfigPoolStatusRow]
    nodes: Mapping[str, ConfigNodeRow]

    def pool(self, name: str) -> ConfigPoolRow:
        """A pool.

        Raises:
            RequestError: there is none of this name.
        """
        found = self.pools.get(name)
        if found is None:
            raise RequestError(f"MachineConfigPool {name!r} was not found", "List them with `gpuledger get mcp`")
        return found

    def history(self, pool: str) -> list[RenderedConfigRow]:
        """The rendered configurations of a pool, the newest first."""
        return sorted((one for one in self.rendered.values() if one.pool == pool), key=_place, reverse=True)

    def nodes_of(self, pool: str) -> list[ConfigNodeRow]:
        """The nodes that a pool selects, and those that it still has in hand, by name."""
        found = (row for row in self.nodes.values() if row.uid is not None and pool in (row.pool, row.decided_pool))
        return sorted(found, key=lambda row: row.node)

    def target(self, pool: str) -> str | None:
        """The rendered configuration that a pool's nodes are to have: as decided, else the pinned or newest one."""
        status = self.statuses.get(pool)
        if status is not None and status.target_revision is not None:
            return status.target_revision
        pinned = pinned_revision(self.pool(pool))
        history = self.history(pool)
        return pinned if pinned in self.rendered else history[0].name if history else None

    def rendered_named(self, pool: str, name: str) -> RenderedConfigRow:
        """A rendered configuration of a pool, by its name or its revision.

        Raises:
            RequestError: the pool has none.
        """
        history = self.history(pool)
        found = next((one for one in history if name in (one.name, one.revision)), None)
        if found is None:
            hint = ", ".join(one.name for one in history)
            there = f"It has {hint}" if hint else "Nothing has been rendered for it yet"
            raise RequestError(f"MachineConfigPool {pool!r} has no rendered configuration {name!r}", there)
        return found


def _place(row: RenderedConfigRow) -> int:
    return row.place


def spec_of(row: ConfigPoolRow) -> MachineConfigPoolDefined:
    """The definition of a pool."""
    return MachineConfigPoolDefined.model_validate_json(row.definition)


def config_of(row: RenderedConfigRow) -> MachineConfigRendered:
    """What a rendered configuration holds."""
    return MachineConfigRendered.model_validate_json(row.config)


def pinned_revision(row: ConfigPoolRow) -> str | None:
    """The rendered configuration that a pool is pinned to."""
    return spec_of(row).pinned_revision


def tables_of(state: State) -> ConfigTables:
    """The tables of a state of the service `rollout`."""
    tables = state.tables()

    def rows(spec: TableSpec[Any]) -> Mapping[str, Any]:
        return tables[spec.name].rows

    return ConfigTables(
        rows(MACHINE_CONFIG), rows(CONFIG_POOL), rows(RENDERED_CONFIG), rows(CONFIG_POOL_STATUS), rows(CONFIG_NODE)
    )
