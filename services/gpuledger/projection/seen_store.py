"""The numbers that an edition of a projection has seen, in PostgreSQL: they change with its rows, as one."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from psycopg import AsyncConnection

from gpuledger.domain.sources.deduplication import Numbers, Seen, SeenChange


async def read_seen(connection: AsyncConnection[Any], projection: str, edition: str) -> Seen:
    """The numbers that an edition has seen."""
    cursor = await connection.execute(
        "SELECT source, epoch, last, holes, began FROM gpuledger.seen WHERE projection = %s AND edition = %s "
        "ORDER BY began, source, epoch",
        (projection, edition),
    )
    rows = await cursor.fetchall()
    numbers = {
        (source, epoch): Numbers(last, zip(holes[::2], holes[1::2], strict=True))
        for source, epoch, last, holes, _ in rows
    }
    return Seen(numbers, began=rows[-1][-1] if rows else 0)


async def write_seen(connection: AsyncConnection[Any], projection: str, edition: str, seen: Seen) -> None:
    """Write what changed since the last call, as one statement however many sources there are."""
    forgotten, changes = seen.take_forgotten(), seen.take_changes()
    if forgotten:
        sources, epochs = zip(*forgotten, strict=True)
        await connection.execute(
            "DELETE FROM gpuledger.seen USING unnest(%s::text[], %s::text[]) AS one (source, epoch) "
            "WHERE projection = %s AND edition = %s AND seen.source = one.source AND seen.epoch = one.epoch",
            (list(sources), list(epochs), projection, edition),
        )
    if changes:
        await connection.execute(
            "INSERT INTO gpuledger.seen (projection, edition, source, epoch, last, holes, began) "
            "SELECT %s, %s, source, epoch, last, holes::bigint[], began "
            "FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[], %s::bigint[]) "
            "AS one (source, epoch, last, holes, began) "
            "ON CONFLICT (projection, edition, source, epoch) "
            "DO UPDATE SET last = excluded.last, holes = excluded.holes",
            (projection, edition, *_columns(changes)),
        )


def _columns(changes: Sequence[SeenChange]) -> tuple[list[str], list[str], list[int], list[str], list[int]]:
    """The columns of numbers seen; holes are arrays as text, because arrays of arrays must all have one length."""
    return (
        [one.source for one in changes],
        [one.epoch for one in changes],
        [one.last for one in changes],
        [f"{{{','.join(map(str, chain.from_iterable(one.holes)))}}}" if one.holes else "{}" for one in changes],
        [one.began for one in changes],
    )
