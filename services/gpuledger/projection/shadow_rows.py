"""The new tables of a rebuild while they take the rows of a snapshot: several at a time, each over its own connection.

The lock of rebuilds is held by another connection, and may be lost while these go on. So each looks, once nobody can
take its table away, whether the edition is still that of this rebuild: it never writes into the tables of another one.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from gpuledger.db.engine import connect
from gpuledger.projection.checkpoint import Checkpoint
from gpuledger.projection.rows import Piece
from gpuledger.projection.store import ProjectionStore

TABLES_AT_ONCE_MAX: Final = 2
"""One makes its indexes while another takes rows; each more takes the memory of a piece, and another processor."""


class ShadowRows:
    """The tables of an edition that a rebuild has begun, as its checkpoint says."""

    def __init__(self, store: ProjectionStore, begun: Checkpoint, database_url: str) -> None:
        self._store = store
        self._begun = begun
        self._database_url = database_url

    @property
    def names(self) -> Sequence[str]:
        """The tables."""
        return self._store.names

    @property
    def filled_at_once(self) -> int:
        """How many may be filled at a time."""
        return TABLES_AT_ONCE_MAX

    async def fill(self, table: str, pieces: AsyncIterator[Piece]) -> None:
        """Write all rows of a table that is empty; see `RowStore.fill`.

        Raises:
            WriterFencedError: another rebuild has begun.
        """
        projection = self._store.projection
        name = f"gpuledger rebuild {projection.name}"
        async with connect(self._database_url, application_name=name) as connection:
            await ProjectionStore(connection, projection, self._store.edition).fill(table, pieces, self._begun)

    async def empty(self) -> None:
        """Remove every row of every table."""
        await self._store.empty()
