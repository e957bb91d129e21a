"""Opens the ledger in JetStream: one stream a generation, or several partitions and their order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpuledger.ledger.closed import Archives, ClosedGenerations
from gpuledger.ledger.connect import CONNECT_TIMEOUT_S, Connection, connected, refuse_old_server
from gpuledger.ledger.continuity import LogGuard
from gpuledger.ledger.generation_log import Times
from gpuledger.ledger.identity import LedgerIdentity
from gpuledger.ledger.open_log import open_log
from gpuledger.ledger.partition_streams import check_partitions
from gpuledger.ledger.partitioned import PartitionedLedger
from gpuledger.ledger.permissions import CLOSING_ROOT
from gpuledger.ledger.publish import PUBLISH_TIMEOUT_S
from gpuledger.ledger.read import IDLE_HEARTBEAT_S, RESTORE_TIMEOUT_S
from gpuledger.ledger.sequencer import append_rest
from gpuledger.ledger.stream import Generation, open_current, open_generation
from gpuledger.ledger.stream_ledger import JetStreamLedger
from gpuledger.runtime.settings import ANONYMOUS, NatsIdentity

__all__ = ["JetStreamLedger", "connect_ledger"]


@asynccontextmanager
async def connect_ledger(
    url: str,
    *,
    name: str,
    identity: NatsIdentity = ANONYMOUS,
    generation: int | None = None,
    replicas: int | None = None,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    publish_timeout_s: float = PUBLISH_TIMEOUT_S,
    heartbeat_s: float = IDLE_HEARTBEAT_S,
    restore_timeout_s: float = RESTORE_TIMEOUT_S,
    archives: Archives | None = None,
    puts_in_order: bool = False,
) -> AsyncIterator[JetStreamLedger]:
    """The ledger at `url`, opened and never made; `name` is shown by the server as the connection's.

    `generation` opens an earlier one, archived ones for reading only. `archives` reads closed ones whose streams are
    gone. With `puts_in_order` what several partitions record is put into the log from here where nobody else does that.

    Raises:
        LedgerUnavailableError: the server cannot be reached, is too old, or has no JetStream.
        NoLedgerError: there is none.
        StreamConfigError: a stream is not as a ledger must be.
        LogLostError: the stream of a partition is gone.
        LogRestoredError: it has fewer events than are in the log.
        LogCutError: events are missing from it.
        GenerationError: there is no such generation.
    """
    async with connected(url, name=name, timeout_s=connect_timeout_s, identity=identity) as connection:
        refuse_old_server(connection)
        found = await _found(connection, generation, replicas)
        times = Times(publish_timeout_s, heartbeat_s, restore_timeout_s)
        if found.partitions > 1:
            ledger = await _several_partitions(connection, found, archives, times, puts_in_order=puts_in_order)
        else:
            ledger = _one_partition(connection, found, archives, times)
        async with ledger.running(follows=generation is None):
            yield ledger


async def _found(connection: Connection, generation: int | None, replicas: int | None) -> Generation:
    if generation is None:
        return await open_current(connection, replicas)
    return await open_generation(connection, generation)


async def _several_partitions(
    connection: Connection, found: Generation, archives: Archives | None, times: Times, *, puts_in_order: bool
) -> JetStreamLedger:
    await check_partitions(connection, found)
    closed = ClosedGenerations(connection, _identity(found), archives, lambda one: open_log(connection, one, times))
    ledger = PartitionedLedger(connection, found, closed, times, puts_in_order=puts_in_order)
    await ledger.confirm()
    if found.intake == CLOSING_ROOT:
        await append_rest(connection, ledger.log.order, ledger.log.lengths)  # of a command that was interrupted
    return ledger


def _one_partition(
    connection: Connection, found: Generation, archives: Archives | None, times: Times
) -> JetStreamLedger:
    closed = ClosedGenerations(connection, _identity(found), archives, lambda one: open_log(connection, one, times))
    guard = None if found.identity is None else LogGuard(connection, found.identity, closed.anchor_at)
    return JetStreamLedger(connection, found, closed, times, guard)


def _identity(found: Generation) -> LedgerIdentity:
    return found.identity or LedgerIdentity("", found.number)
