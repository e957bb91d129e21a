"""Rows of machine configuration for `gpuledger get`, each of them computed from several tables of `rollout`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpuledger.cli.get.config_nouns import CONFIG_NOUNS, MACHINE_CONFIG_POOLS, MACHINE_CONFIGS, RENDERED_CONFIGS
from gpuledger.cli.get.ledger import TableQuery
from gpuledger.tools.machineconfig.listing import config_rows, pool_rows, rendered_rows
from gpuledger.tools.machineconfig.reading import current_tables, recorded_tables
from gpuledger.tools.machineconfig.tables import ConfigTables
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.moments import PointInTime, sequence_of

_ROWS: Final[Mapping[str, Callable[[ConfigTables], Iterable[RowDict]]]] = {
    MACHINE_CONFIGS.view.kind: config_rows,
    MACHINE_CONFIG_POOLS.view.kind: pool_rows,
    RENDERED_CONFIGS.view.kind: rendered_rows,
}
assert len(_ROWS) == len(CONFIG_NOUNS)


@dataclass(frozen=True, slots=True)
class ConfigQuery(TableQuery):
    """Rows of one kind of machine configuration."""

    async def read(self, backend: Backend, moment: PointInTime, columns: Sequence[str] = ()) -> Sequence[RowDict]:
        """Read the rows as of a moment; of a time of what happened there is no history."""
        if moment.at is not None:
            return await TableQuery.read(self, backend, moment, columns)
        if moment.recorded is None:
            tables = await current_tables(backend)
        else:
            tables = await recorded_tables(backend, await sequence_of(backend, moment.recorded))
        rows = _ROWS[self.view.kind](tables)
        return [row for row in rows if not self.names or row["name"] in self.names]

    def key(self, row: RowDict) -> tuple[object, ...]:
        """The name."""
        return (row["name"],)
