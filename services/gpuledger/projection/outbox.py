"""Rows of a decider's outbox beyond deciding and publishing: those that were sent, and those of a rollback."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from gpuledger.events.position import NEVER, Offset
from gpuledger.ledger.api import Outgoing

UNSETTLED = NEVER
"""The `settle_until` of a decider that holds back until the head that the log has when it starts."""


class SentDecision(NamedTuple):
    """A decision that the ledger has acknowledged; an earlier build did not note at which sequence."""

    id: str
    subject: str
    data: bytes
    sequence: Offset | None


async def sent_decisions(connection: AsyncConnection[Any], projection: str) -> list[SentDecision]:
    """The decisions that are in the ledger and have not come back."""
    cursor = await connection.execute(
        "SELECT id, subject, data, sequence FROM gpuledger.outbox WHERE projection = %s AND status = 'sent'",
        (projection,),
    )
    return [
        SentDecision(event_id, subject, bytes(data), sequence)
        for event_id, subject, data, sequence in await cursor.fetchall()
    ]


async def ready_decisions(
    connection: AsyncConnection[Any], projection: str, incarnation: str
) -> dict[str, Outgoing] | None:
    """What has to be published, in order, by the decision's id, if the live rows are of this incarnation; else None.

    Whoever swaps the rows puts into the outbox what the new rows decide, which is not the old writer's to publish: one
    statement sees both of before the swap or both of after. A row of an earlier build has no id but the event's.
    """
    cursor = await connection.execute(
        "SELECT id, subject, coalesce(message_id, id), data FROM gpuledger.projection "
        "LEFT JOIN gpuledger.outbox ON projection = name AND status = 'ready' "
        "WHERE name = %s AND edition = 'live' AND incarnation = %s ORDER BY number",
        (projection, incarnation),
    )
    rows = await cursor.fetchall()
    if not rows:
        return None
    return {
        event_id: Outgoing(subject, message_id, bytes(data))
        for event_id, subject, message_id, data in rows
        if event_id is not None
    }


async def recall(connection: AsyncConnection[Any], projection: str, *, ready: bool = False) -> None:
    """Hold back what was sent until the next leader has seen whether it came back; it publishes the rest anew.

    What is `ready` as well where another leader may have closed the epoch of its numbers.
    """
    await connection.execute(
        "UPDATE gpuledger.outbox SET status = 'held', message_id = NULL, sequence = NULL "
        "WHERE projection = %s AND status = ANY(%s)",
        (projection, ["sent", "ready"] if ready else ["sent"]),
    )


async def outbox_ages(connection: AsyncConnection[Any], projections: Sequence[str]) -> dict[str, tuple[int, float]]:
    """Of each projection, how many decisions have not come back, and for how many seconds the oldest of them."""
    cursor = await connection.execute(
        "SELECT projection, count(*), extract(epoch FROM now() - min(decided_at))::float8 "
        "FROM gpuledger.outbox WHERE projection = ANY(%s) GROUP BY projection",
        (list(projections),),
    )
    found = {name: (count, max(0.0, age_s)) for name, count, age_s in await cursor.fetchall()}
    return {name: found.get(name, (0, 0.0)) for name in projections}


async def copy_outbox(connection: AsyncConnection[Any], projection: str) -> None:
    """Keep a copy of the outbox with the rows that become `prev`."""
    kept = _kept_name(projection)
    await connection.execute("DELETE FROM gpuledger.outbox WHERE projection = %s", (kept,))
    await connection.execute(
        "INSERT INTO gpuledger.outbox (projection, id, subject, data, number, status) "
        "SELECT %s, id, subject, data, number, 'held' FROM gpuledger.outbox WHERE projection = %s",
        (kept, projection),
    )


async def exchange_outbox(connection: AsyncConnection[Any], projection: str, epoch: str) -> None:
    """Change the outbox for the copy that was kept; what is in it is held back until the head was read."""
    kept, moving = _kept_name(projection), f"{projection}@moving"
    for before, after in [(projection, moving), (kept, projection), (moving, kept)]:
        await connection.execute(
            "UPDATE gpuledger.outbox SET projection = %s, status = 'held' WHERE projection = %s", (after, before)
        )
    await connection.execute(
        "UPDATE gpuledger.decider SET epoch = %s, next_number = 1, settle_until = %s WHERE projection = %s",
        (epoch, UNSETTLED, projection),
    )


def _kept_name(projection: str) -> str:
    return f"{projection}@prev"
