"""Requests for the maintenance of nodes, and what became of them, for `gpuledger get`."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuledger.cli.get.ledger import RowKey, TableQuery
from gpuledger.tools.maintenance import current_state, recorded_state, request_rows
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.moments import PointInTime, sequence_of


@dataclass(frozen=True, slots=True)
class MaintenanceQuery(TableQuery):
    """Rows that follow from several tables of the decider of maintenance; `names` are those of nodes."""

    async def read(self, backend: Backend, moment: PointInTime, columns: Sequence[str] = ()) -> Sequence[RowDict]:
        """Read the rows as of a moment; of a time of what happened there is no history."""
        if moment.at is not None:
            return await TableQuery.read(self, backend, moment, columns)
        if moment.recorded is None:
            state = await current_state(backend)
        else:
            state = await recorded_state(backend, await sequence_of(backend, moment.recorded))
        return [row for row in request_rows(state) if not self.names or row["node"] in self.names]

    def key(self, row: RowDict) -> RowKey:
        """Node and owner."""
        return (row["node"], row["owner"])
