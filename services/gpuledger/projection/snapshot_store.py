"""Snapshots in PostgreSQL: one of each name and layout, which only a later one of the same log replaces.

Whoever writes one has it from the log alone, so that any of several replicas may write, and none of them leads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from gpuledger.events.position import Generations, Position
from gpuledger.ledger.identity import Anchor
from gpuledger.projection.snapshot import Layout, Piece, PiecesDigest, Row, RowDecoder, Snapshot, pieces_of

OTHER_LAYOUTS_KEPT_DAYS: Final = 30
"""How long snapshots of other builds stay, for a build that runs beside this one, or comes back in a rollback."""

PIECES_PER_FETCH: Final = 4


class SnapshotDamagedError(Exception):
    """The rows of a snapshot are not those that were written."""


class Header(NamedTuple):
    """Which snapshot there is, without its rows."""

    ledger_id: str
    generation: int
    anchor: Anchor
    pieces_digest: str

    def is_followed_by(self, ledger_id: str, generations: Generations) -> bool:
        """Whether it is of these generations of this ledger."""
        return self.ledger_id == ledger_id and generations.has(Position(self.generation, self.anchor.sequence))


_HEADER: Final = "ledger_id, generation, position, event_id, event_digest, pieces_digest"
_KEY: Final = "name = %s AND layout = %s"


class SnapshotStore:
    """The snapshot of one name and layout, over the caller's connection."""

    def __init__(self, connection: AsyncConnection[Any], layout: Layout) -> None:
        self._connection = connection
        self._layout = layout
        self._key = (layout.name, layout.digest)

    async def header(self) -> Header | None:
        """Which one there is, if any."""
        cursor = await self._connection.execute(
            f"SELECT {_HEADER} FROM gpuledger.snapshot WHERE {_KEY}",  # noqa: S608 - our own words
            self._key,
        )
        row = await cursor.fetchone()
        return None if row is None else _header_of(row)

    async def load(self, header: Header, on_piece: Callable[[], None] | None = None) -> Snapshot | None:
        """The snapshot of this header; None where another one has replaced it since. `on_piece` is called for each.

        Raises:
            SnapshotDamagedError: its rows are not those that were written.
        """
        decoder, digest = RowDecoder(self._layout.specs), PiecesDigest()
        rows: dict[str, list[Row]] = {one.name: [] for one in self._layout.specs}
        async with self._connection.transaction():
            await self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            if await self.header() != header:
                return None
            async for piece in self._pieces():
                digest.add(piece)
                if on_piece is not None:
                    on_piece()
                if piece.table in rows:
                    rows[piece.table] += decoder.rows(piece)
        if digest.text != header.pieces_digest:
            raise SnapshotDamagedError(
                f"The rows of the snapshot {self._layout.name} at {header.anchor.sequence} in gpuledger.snapshot_piece "
                "are not those that were written."
            )
        return Snapshot(header.ledger_id, header.generation, header.anchor, rows)

    async def write(self, snapshot: Snapshot, refused: Header | None = None) -> bool:
        """Keep this snapshot instead of an earlier one, or of the one that was `refused`; False where there is a later.

        Several replicas may write at a time: the row of the header has the second one wait for the first.
        """
        async with self._connection.transaction():
            return await self._replace(snapshot, refused)

    async def _replace(self, snapshot: Snapshot, refused: Header | None) -> bool:
        if not await self._put_header(snapshot, refused):
            return False
        await self._connection.execute(
            f"DELETE FROM gpuledger.snapshot_piece WHERE {_KEY}",  # noqa: S608 - our own words
            self._key,
        )
        digest, pieces = PiecesDigest(), pieces_of(snapshot)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            digest.add(piece)
            await self._connection.execute(
                "INSERT INTO gpuledger.snapshot_piece (name, layout, part, number, data) VALUES (%s, %s, %s, %s, %s)",
                (*self._key, *piece),
            )
        await self._connection.execute(
            f"UPDATE gpuledger.snapshot SET pieces_digest = %s WHERE {_KEY}",  # noqa: S608 - our own words
            (digest.text, *self._key),
        )
        await self._connection.execute(
            "DELETE FROM gpuledger.snapshot "
            "WHERE name = %s AND layout <> %s AND written_at < now() - %s * interval '1 day'",
            (*self._key, OTHER_LAYOUTS_KEPT_DAYS),
        )
        return True

    async def _put_header(self, snapshot: Snapshot, refused: Header | None) -> bool:
        cursor = await self._connection.execute(
            "INSERT INTO gpuledger.snapshot AS kept "  # noqa: S608 - our own words
            f"(name, layout, {_HEADER}, version) VALUES (%s, %s, %s, %s, %s, %s, %s, '', %s) "
            "ON CONFLICT (name, layout) DO UPDATE SET ledger_id = excluded.ledger_id, "
            "generation = excluded.generation, position = excluded.position, event_id = excluded.event_id, "
            "event_digest = excluded.event_digest, written_at = now() "
            "WHERE kept.ledger_id <> excluded.ledger_id "
            "OR (kept.generation, kept.position) < (excluded.generation, excluded.position) "
            "OR kept.pieces_digest = %s RETURNING position",
            (
                *self._key,
                *(snapshot.ledger_id, snapshot.generation, *snapshot.anchor),
                *(self._layout.version, "" if refused is None else refused.pieces_digest),
            ),
        )
        return await cursor.fetchone() is not None

    async def _pieces(self) -> AsyncIterator[Piece]:
        async with self._connection.cursor(name="snapshot_pieces") as cursor:
            cursor.itersize = PIECES_PER_FETCH
            await cursor.execute(
                f"SELECT part, number, data FROM gpuledger.snapshot_piece WHERE {_KEY} ORDER BY number",  # noqa: S608
                self._key,
            )
            async for table, number, data in cursor:
                yield Piece(table, number, bytes(data))


def _header_of(row: Sequence[Any]) -> Header:
    ledger_id, generation, position, event_id, event_digest, pieces_digest = row
    return Header(ledger_id, generation, Anchor(position, event_id, event_digest), pieces_digest)
