"""Slices, their pools and claims for `gpuledger get`: from the ledger, or from Kubernetes alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuledger.cli.get.availability_nouns import AvailabilityNoun
from gpuledger.cli.get.ledger import RowKey, show_found
from gpuledger.cli.render import Output, View
from gpuledger.cli.source import announce_present
from gpuledger.cli.state_source import show_notes
from gpuledger.domain.dra.rows import AVAILABILITY, DEVICE_CLASS
from gpuledger.domain.dra.state import Availability
from gpuledger.tools.cluster import KubeAccess
from gpuledger.tools.present.source import KubernetesSource
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.moments import PointInTime
from gpuledger.tools.queries.slice_statuses import staleness
from gpuledger.tools.queries.source import LedgerSource

NOT_IN_ROWS = (DEVICE_CLASS.name, AVAILABILITY.name)
"""Tables that no row of slices, their pools and claims depends on."""


@dataclass(frozen=True, slots=True)
class AvailabilityQuery:
    """Rows that follow from the state of dynamic resource allocation; `names` are full, as `namespace/name`."""

    noun: AvailabilityNoun
    names: Sequence[str]
    namespace: str | None

    @property
    def view(self) -> View:
        """The columns."""
        return self.noun.view

    @property
    def projection(self) -> str:
        """The projection of the state."""
        return "availability"

    async def read(
        self,
        backend: Backend,
        moment: PointInTime,
        columns: Sequence[str] = (),  # noqa: ARG002 - as the protocol has it
    ) -> Sequence[RowDict]:
        """Evaluate the rows as of a moment."""
        return self.rows_of(await LedgerSource(backend).availability(moment))

    def rows_of(self, state: Availability) -> list[RowDict]:
        """The rows of a state, wherever it was read."""
        return [row for row in self.noun.rows(state) if self._is_selected(row)]

    async def note(self, backend: Backend) -> str | None:
        """That Kubernetes shows something older, where that is so."""
        stale = await staleness(backend.ledger) if self.noun.has_statuses else None
        return f"ResourceSliceStatuses in Kubernetes are {stale}; these rows come from the ledger." if stale else None

    def key(self, row: RowDict) -> RowKey:
        """The key of the kind."""
        return tuple(row[part] for part in self.noun.key)

    def name(self, row: RowDict) -> object:
        """The name of a row."""
        return self.noun.name_of(row)

    def laid_out(self, rows: Sequence[RowDict], output: Output) -> Sequence[RowDict]:
        """The rows with what only tables have, or as names alone."""
        return self.noun.shown(rows, output)

    def _is_selected(self, row: RowDict) -> bool:
        if self.namespace is not None and row["namespace"] != self.namespace:
            return False
        return not self.names or self.noun.name_of(row) in self.names


async def show_present_rows(query: AvailabilityQuery, access: KubeAccess, output: Output, *, headers: bool) -> None:
    """Show the rows as Kubernetes has them now, without a ledger.

    Raises:
        CliError: there is no row of a requested name.
    """
    announce_present()
    source = KubernetesSource(access, query.namespace)
    state = await source.availability(without=NOT_IN_ROWS)
    show_notes(source)
    show_found(query, query.rows_of(state), output, headers=headers)
