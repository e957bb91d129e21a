"""Makes the ledger, once, and gives an older one its id.

Only `gpuledger migrate`, the first start of `gpuledger up`, and commands that begin a data directory come here. No
ledger is made where rows tell that there was one before.
"""

from typing import NamedTuple

from gpuledger.db.engine import connect
from gpuledger.events.position import Position, is_after
from gpuledger.ledger.connect import Connection, connected, refuse_old_server
from gpuledger.ledger.continuity import confirm_anchor, positions_in
from gpuledger.ledger.errors import ClosingError, LogLostError, LogRestoredError, NoLedgerError, RestoreInterruptedError
from gpuledger.ledger.partition_streams import make_ledger, refuse_other_number
from gpuledger.ledger.stream import Generation, open_current, stream_info
from gpuledger.projection.checkpoint import CHECKPOINT_COLUMNS, LIVE, Checkpoint, checkpoint_of
from gpuledger.runtime.clock import NewId, random_id
from gpuledger.runtime.settings import ANONYMOUS, NatsIdentity


class PreparedLedger(NamedTuple):
    """The ledger's id, and whether it was made, or got that id, just now."""

    ledger_id: str
    is_new: bool


async def prepare_ledger(
    nats_url: str,
    database_url: str,
    *,
    identity: NatsIdentity = ANONYMOUS,
    may_create: bool = True,
    replicas: int | None = None,
    partitions: int | None = None,
    may_alter: bool = False,
    new_id: NewId = random_id,
) -> PreparedLedger:
    """See to it that there is a ledger with an id, beside a migrated database; repeating it changes nothing.

    `replicas` is how many a new stream has. One that is there gets as many, and what else this build would give it,
    only where `may_alter`: services may not. `partitions` is how many a ledger has, new or not.

    Raises:
        NoLedgerError: there is none, and `may_create` does not allow it.
        LogLostError: there is no ledger, but rows that were folded from one.
        LogRestoredError: the rows were folded from a longer log, or another one.
        RestoreInterruptedError: a restore has yet to complete it.
        ClosingError: a generation is being closed.
        StreamConfigError: a stream is there that is not as a ledger must be, or it has another number of partitions.
        LedgerUnavailableError: NATS cannot be reached, is too old, or refuses permission.
    """
    async with connected(nats_url, name="gpuledger migrate", identity=identity) as connection:
        refuse_old_server(connection)
        found = await _found(connection, may_create=may_create)
        if found is not None and found.identity is not None:
            refuse_other_number(found.partitions, partitions)
            if may_alter:
                await make_ledger(connection, found.identity.ledger_id, replicas)
            return PreparedLedger(found.identity.ledger_id, is_new=False)
        checkpoints = await _checkpoints(database_url)
        if found is None:
            _refuse_rows(connection, checkpoints)
        else:
            await _confirm_rows(connection, found, checkpoints)
        ledger_id = next((one.ledger_id for one in checkpoints if one.ledger_id), None) or new_id()
        made = await make_ledger(connection, ledger_id, replicas if found is None or may_alter else None, partitions)
        assert made.identity is not None, "what is made has an identity"
        return PreparedLedger(made.identity.ledger_id, is_new=True)


async def _found(connection: Connection, *, may_create: bool) -> Generation | None:
    try:
        return await open_current(connection)
    except (RestoreInterruptedError, ClosingError):
        raise  # there is one, which somebody has yet to complete
    except NoLedgerError:
        if not may_create:
            raise
        return None


async def _checkpoints(database_url: str) -> list[Checkpoint]:
    async with connect(database_url, application_name="gpuledger migrate") as connection:
        cursor = await connection.execute(
            f"SELECT {CHECKPOINT_COLUMNS} FROM gpuledger.projection "  # noqa: S608 - our own words
            "WHERE edition = %s AND position > 0 ORDER BY generation DESC, position DESC",
            [LIVE],
        )
        return [checkpoint_of(row) for row in await cursor.fetchall()]


def _refuse_rows(connection: Connection, checkpoints: list[Checkpoint]) -> None:
    """Refuse to begin a ledger beside rows of another one."""
    if checkpoints:
        newest = checkpoints[0]
        raise LogLostError(
            f"NATS at {connection.address} has no ledger, and the database holds rows that were folded from the "
            f"ledger {newest.ledger_id or 'of an earlier build'} up to {newest.at}; "
            "no other ledger is made beside them"
        )


async def _confirm_rows(connection: Connection, found: Generation, checkpoints: list[Checkpoint]) -> None:
    """Confirm that the rows were folded from this ledger, before it gets its id."""
    head = (await stream_info(connection, found.stream)).state.last_seq
    for one in checkpoints:
        if not one.at.is_in(found.number):
            continue
        if one.anchor is not None:
            await confirm_anchor(connection, found.stream, head, one.anchor, positions_in(found.number))
        elif is_after(one.position, head):
            raise LogRestoredError(
                f"{found.stream} at {connection.address} ends at {Position(found.number, head)}, and the database "
                f"holds rows that were folded up to {one.at}"
            )
