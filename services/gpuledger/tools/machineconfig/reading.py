"""Reads the tables of machine configuration: those of now, or as they were recorded at a position."""

from typing import Final

from gpuledger.deciders.rollout.projection import RolloutProjection
from gpuledger.domain.machineconfig.state import Rollout
from gpuledger.events.position import Offset
from gpuledger.tools.machineconfig.tables import ConfigTables, tables_of
from gpuledger.tools.queries.backend import Backend, current, folded_past

PROJECTION: Final = RolloutProjection.name
"""The projection that keeps them."""


async def current_tables(backend: Backend) -> ConfigTables:
    """The tables of now."""
    return tables_of(await current_state(backend))


async def recorded_tables(backend: Backend, until: Offset) -> ConfigTables:
    """The same as they were recorded at a position."""
    return tables_of((await folded_past(backend, RolloutProjection(), until)).state)


async def current_state(backend: Backend) -> Rollout:
    """The state of the service, which is the caller's own to put hypothetical rows into."""
    state: Rollout = await current(backend, RolloutProjection())
    return state
