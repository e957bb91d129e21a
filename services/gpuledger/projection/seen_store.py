"""The numbers seen of a log in PostgreSQL: one table for all projections, with a position of its own.

They are written seldom, and not with the rows: a projection that is behind learns from the table of refused numbers
which events did not count, and one that is ahead reads the few events in between again.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import orjson
from psycopg import AsyncConnection

from gpuledger.domain.sources.deduplication import Numbers, Seen, SeenChange
from gpuledger.events.position import PARTITION, Offset, Position
from gpuledger.ledger.identity import Anchor, LedgerIdentity
from gpuledger.projection.log_numbers import NumbersChange

ROWS_PER_STATEMENT: Final = 5_000
"""How many sources one statement writes: encoding them holds the event loop up for some milliseconds."""


class StoredNumbers(NamedTuple):
    """Of which log the numbers are, up to where, and behind where it is known which events did not count."""

    ledger_id: str
    generation: int
    position: Offset
    anchor: Anchor | None
    complete_from: Offset

    def is_of(self, identity: LedgerIdentity) -> bool:
        """Whether they are of this log, as far as its name goes."""
        return self.ledger_id == identity.ledger_id and identity.generations.has(self.at)

    @property
    def at(self) -> Position:
        """Up to where they are."""
        return Position(self.generation, self.position)


async def read_stored(connection: AsyncConnection[Any]) -> StoredNumbers | None:
    """What is known of the numbers that are stored, None if there are none."""
    cursor = await connection.execute(
        "SELECT ledger_id, generation, position, last_event_id, last_digest, complete_from "
        "FROM gpuledger.numbers_seen_position WHERE partition = %s",
        (PARTITION,),
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    ledger_id, generation, position, event_id, digest, complete_from = row
    anchor = None if digest is None else Anchor(position, event_id, digest)
    return StoredNumbers(ledger_id, generation, position, anchor, complete_from)


async def read_seen(connection: AsyncConnection[Any]) -> Seen:
    """The numbers seen that are stored."""
    cursor = await connection.execute(
        "SELECT source, epoch, last, holes, began FROM gpuledger.numbers_seen WHERE partition = %s "
        "ORDER BY began, source, epoch",
        (PARTITION,),
    )
    return _seen(await cursor.fetchall())


async def read_refused(connection: AsyncConnection[Any]) -> dict[Offset, str | None]:
    """The events that did not count, in the order of the log; the reason is None where the number was seen before."""
    cursor = await connection.execute(
        "SELECT position, reason FROM gpuledger.number_refused WHERE partition = %s ORDER BY position", (PARTITION,)
    )
    return dict(await cursor.fetchall())


async def read_seen_of_older_builds(
    connection: AsyncConnection[Any], identity: LedgerIdentity, versions: Sequence[tuple[str, int]]
) -> tuple[StoredNumbers, Seen] | None:
    """The numbers that older builds kept with the rows of a projection, of the one that is least far.

    Those of the others are further, so that each can read on from there. `versions` are those of older builds' rows.
    """
    cursor = await connection.execute(
        "SELECT name, position, last_event_id, last_digest FROM gpuledger.projection "
        "JOIN unnest(%s::text[], %s::bigint[]) AS older (name, version) USING (name, version) "
        "WHERE edition = 'live' AND ledger_id = %s AND generation = %s AND partition = %s "
        "AND last_position = position AND last_digest IS NOT NULL "
        "AND EXISTS (SELECT FROM gpuledger.seen WHERE seen.projection = name AND seen.edition = 'live') "
        "ORDER BY position LIMIT 1",
        (
            [name for name, _ in versions],
            [version for _, version in versions],
            identity.ledger_id,
            identity.generation,
            PARTITION,
        ),
    )
    found = await cursor.fetchone()
    if found is None:
        return None
    name, position, event_id, digest = found
    cursor = await connection.execute(
        "SELECT source, epoch, last, holes, began FROM gpuledger.seen WHERE projection = %s AND edition = 'live' "
        "ORDER BY began, source, epoch",
        (name,),
    )
    stored = StoredNumbers(*identity[:2], position, Anchor(position, event_id, digest), position)
    return stored, _seen(await cursor.fetchall())


async def write_numbers(connection: AsyncConnection[Any], stored: StoredNumbers, change: NumbersChange) -> None:
    """Write what changed, and up to where the numbers are."""
    await _forget(connection, change.forgotten)
    for start in range(0, len(change.changes), ROWS_PER_STATEMENT):
        await _write_seen(connection, change.changes[start : start + ROWS_PER_STATEMENT])
    await _write_refused(connection, stored, change)
    anchor = stored.anchor or (None, None, None)
    await connection.execute(
        "INSERT INTO gpuledger.numbers_seen_position "
        "(partition, ledger_id, generation, position, last_event_id, last_digest, complete_from) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (partition) DO UPDATE SET ledger_id = excluded.ledger_id, "
        "generation = excluded.generation, position = excluded.position, last_event_id = excluded.last_event_id, "
        "last_digest = excluded.last_digest, complete_from = excluded.complete_from, updated_at = now()",
        (PARTITION, *stored[:3], *anchor[1:], stored.complete_from),
    )


async def delete_numbers(connection: AsyncConnection[Any]) -> None:
    """Delete the numbers of a log that there is no more."""
    for table in ("numbers_seen", "number_refused", "numbers_seen_position"):
        await connection.execute(f"DELETE FROM gpuledger.{table} WHERE partition = %s", (PARTITION,))  # noqa: S608


async def _forget(connection: AsyncConnection[Any], forgotten: Sequence[tuple[str, str]]) -> None:
    if forgotten:
        sources, epochs = zip(*forgotten, strict=True)
        await connection.execute(
            "DELETE FROM gpuledger.numbers_seen AS kept USING unnest(%s::text[], %s::text[]) AS one (source, epoch) "
            "WHERE kept.partition = %s AND kept.source = one.source AND kept.epoch = one.epoch",
            (list(sources), list(epochs), PARTITION),
        )


async def _write_seen(connection: AsyncConnection[Any], changes: Sequence[SeenChange]) -> None:
    """One statement; as JSON, because psycopg looks at each element of an array by itself."""
    rows = [
        (one.source, one.epoch, one.last, f"{{{','.join(map(str, chain.from_iterable(one.holes)))}}}", one.began)
        for one in changes
    ]
    await connection.execute(
        "INSERT INTO gpuledger.numbers_seen AS kept (partition, source, epoch, last, holes, began) "
        "SELECT %s, one->>0, one->>1, (one->>2)::bigint, (one->>3)::bigint[], (one->>4)::bigint "
        "FROM jsonb_array_elements(%s::jsonb) AS one ON CONFLICT (partition, source, epoch) "
        "DO UPDATE SET last = excluded.last, holes = excluded.holes, "
        "began = CASE excluded.began WHEN 0 THEN kept.began ELSE excluded.began END",
        (PARTITION, orjson.dumps(rows).decode()),
    )


async def _write_refused(connection: AsyncConnection[Any], stored: StoredNumbers, change: NumbersChange) -> None:
    if change.refused:
        positions, reasons = zip(*change.refused, strict=True)
        await connection.execute(
            "INSERT INTO gpuledger.number_refused (partition, position, reason) "
            "SELECT %s, position, reason FROM unnest(%s::bigint[], %s::text[]) AS one (position, reason) "
            "ON CONFLICT DO NOTHING",
            (PARTITION, list(positions), list(reasons)),
        )
    await connection.execute(
        "DELETE FROM gpuledger.number_refused WHERE partition = %s AND position <= %s",
        (PARTITION, stored.complete_from),
    )


def _seen(rows: Sequence[tuple[Any, ...]]) -> Seen:
    numbers = {
        (source, epoch): Numbers(last, zip(holes[::2], holes[1::2], strict=True))
        for source, epoch, last, holes, _ in rows
    }
    return Seen(numbers, began=rows[-1][-1] if rows else 0)
