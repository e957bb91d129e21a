"""The cursor of the export and its dead letters, in PostgreSQL.

The connection is the one that holds the export's lock, so that who lost the lock can write nothing.
"""

from typing import Any, Final, NamedTuple

from gpuledger.db.engine import AsyncConnection
from gpuledger.events.position import Offset, Position, is_origin, number_of
from gpuledger.ledger.identity import Anchor

NAME: Final = "export"
"""The only export so far; a table could hold several."""

REASON_LENGTH_MAX: Final = 1024

_READ: Final = (
    "SELECT ledger_id, generation, partition, position, event_id, event_digest FROM gpuledger.export_cursor "
    "WHERE name = %s"
)
_BEGIN: Final = (
    "INSERT INTO gpuledger.export_cursor (name, ledger_id, generation, partition, position, event_id, event_digest) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s)"
)
_MOVE: Final = (
    "UPDATE gpuledger.export_cursor SET generation = %s, position = %s, event_id = %s, event_digest = %s, "
    "updated_at = now() WHERE name = %s"
)
_REFUSE: Final = (
    "INSERT INTO gpuledger.export_dead_letter (name, generation, partition, position, event_id, type, subject, reason) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
)
_COUNT: Final = "SELECT count(*) FROM gpuledger.export_dead_letter WHERE name = %s"


class Cursor(NamedTuple):
    """Up to where everything was exported or passed over: in which ledger, where, and the event there.

    `anchor` is None at the origin alone.
    """

    ledger_id: str
    at: Position
    anchor: Anchor | None

    @property
    def sequence(self) -> Offset:
        """The place behind which the export goes on."""
        return self.at.sequence


class DeadLetter(NamedTuple):
    """An event that the endpoint refused for good, and why."""

    at: Position
    event_id: str
    type: str
    subject: str
    reason: str


class CursorStore:
    """Reads and writes the cursor over a connection whose statements commit by themselves."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def read(self) -> Cursor | None:
        """The cursor; None before the first start."""
        row = await (await self._connection.execute(_READ, [NAME])).fetchone()
        return None if row is None else _cursor_of(row)

    async def begin(self, cursor: Cursor) -> None:
        """Write the first cursor."""
        at, anchor = cursor.at, cursor.anchor
        end = (None, None) if anchor is None else (anchor.event_id, anchor.digest)
        values = (NAME, cursor.ledger_id, at.generation, at.partition, number_of(at.sequence), *end)
        await self._connection.execute(_BEGIN, values)

    async def move(self, at: Position, anchor: Anchor, letter: DeadLetter | None = None) -> None:
        """Move the cursor to an event, in one transaction with the dead letter that the event has become, if any."""
        async with self._connection.transaction():
            if letter is not None:
                await self._connection.execute(_REFUSE, _letter_row(letter))
            moved = (at.generation, number_of(at.sequence), anchor.event_id, anchor.digest, NAME)
            await self._connection.execute(_MOVE, moved)

    async def dead_letters(self) -> int:
        """How many dead letters there are."""
        row = await (await self._connection.execute(_COUNT, [NAME])).fetchone()
        assert row is not None, "a count is one row"
        return int(row[0])


def _cursor_of(row: tuple[Any, ...]) -> Cursor:
    ledger_id, generation, partition, position, event_id, digest = row
    anchor = None if is_origin(position) or digest is None else Anchor(position, event_id, digest)
    return Cursor(ledger_id, Position(generation, position, partition), anchor)


def _letter_row(letter: DeadLetter) -> tuple[object, ...]:
    at = letter.at
    place = (at.generation, at.partition, number_of(at.sequence))
    return (
        NAME,
        *place,
        letter.event_id,
        letter.type,
        letter.subject,
        letter.reason.replace("\0", "")[:REASON_LENGTH_MAX],
    )
