"""Reads the tables of machine configuration: those of now, or as they were recorded at a position."""

from typing import Final

from gpuledger.events.position import Offset
from gpuledger.tools.machineconfig.tables import ConfigTables, tables_of
from gpuledger.tools.queries.backend import Backend, current, folded_past, named_projections

PROJECTION: Final = "rollout"
"""The projection that keeps them."""


async def current_tables(backend: Backend) -> ConfigTables:
    """The tables of now."""
    (projection,) = named_projections([PROJECTION])
    return tables_of(await current(backend, projection))


async def recorded_tables(backend: Backend, until: Offset) -> ConfigTables:
    """The same as they were recorded at a position."""
    (projection,) = named_projections([PROJECTION])
    return tables_of((await folded_past(backend, projection, until)).state)
