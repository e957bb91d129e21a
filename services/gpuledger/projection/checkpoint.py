"""The checkpoints of projections: up to where the rows of an edition are true, and who wrote them.

An edition is `live`, `next` (being rebuilt) or `prev` (kept for a rollback); its tables lie in the schema of that name.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from gpuledger.events.position import PARTITION, Offset, Position, is_origin, is_same
from gpuledger.ledger.identity import Anchor
from gpuledger.projection.definition import Projection

LIVE, NEXT, PREV = "live", "next", "prev"


def schema_of(edition: str) -> str:
    """The schema in which an edition's tables lie."""
    return f"gpuledger_{edition}"


class Checkpoint(NamedTuple):
    """Up to where an edition's rows are true, and who wrote them. A build and a rollback change `incarnation`.

    `ledger_id` and the anchor at `position` are None where a build of before there were ids wrote last; at the origin
    there is no anchor.
    """

    version: int
    generation: int
    position: Offset
    events: int
    incarnation: str
    ledger_id: str | None
    anchor: Anchor | None
    partition: int = PARTITION

    @property
    def at(self) -> Position:
        """The position of the last event that was folded."""
        return Position(self.generation, self.position, self.partition)

    @property
    def has_identity(self) -> bool:
        """Whether it names its ledger and the last event that was folded."""
        return self.ledger_id is not None and (is_origin(self.position) or self.anchor is not None)


CHECKPOINT_COLUMNS = (
    "version, generation, partition, position, events, incarnation, ledger_id, "
    "last_position, last_event_id, last_digest"
)


def checkpoint_of(row: tuple[Any, ...]) -> Checkpoint:
    """The checkpoint in the `CHECKPOINT_COLUMNS` of a row of `gpuledger.projection`."""
    version, generation, partition, position, events, incarnation, ledger_id, *last = row
    anchor = Anchor(*last) if is_same(last[0], position) and None not in last else None
    return Checkpoint(version, generation, position, events, incarnation, ledger_id, anchor, partition)


async def live_checkpoints(
    connection: AsyncConnection[Any], projections: Iterable[Projection]
) -> dict[str, Checkpoint]:
    """The checkpoints of those of the projections whose live rows were ever built, with one query if there are any."""
    names = [projection.name for projection in projections]
    if not names:
        return {}
    cursor = await connection.execute(
        f"SELECT {CHECKPOINT_COLUMNS}, name FROM gpuledger.projection "  # noqa: S608 - our own words
        "WHERE edition = %s AND name = ANY(%s)",
        (LIVE, names),
    )
    return {name: checkpoint_of(tuple(columns)) for *columns, name in await cursor.fetchall()}
