"""A generation that a restore fills: nothing else is recorded in it until it is complete.

Its streams listen on subjects of the restore alone, and store what comes there under the events' own subjects. Whoever
publishes events meanwhile finds no ledger, and waits as for a server that is away.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from nats.js.api import StreamConfig, StreamInfo

from gpuledger.events.position import number_of
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import NoLedgerError, RestoreInterruptedError
from gpuledger.ledger.identity import LedgerIdentity, identity_of
from gpuledger.ledger.intake import stream_intake
from gpuledger.ledger.open_log import end_of, open_log
from gpuledger.ledger.partition_closing import close_partitions
from gpuledger.ledger.partition_restoring import (
    fence_partitions,
    fenced_order,
    is_order_fenced,
    open_restored,
    recorded_in,
)
from gpuledger.ledger.partition_streams import create_partitions
from gpuledger.ledger.permissions import RESTORE_ROOT
from gpuledger.ledger.stream import (
    ARCHIVED,
    RESTORING,
    Generation,
    archive_subject,
    create_generation,
    generation_of,
    is_archived,
    ledger_streams,
    open_current,
    refuse_closing,
    stream_info,
    stream_name,
    update_stream_config,
)


class Restoring(NamedTuple):
    """A generation that is being filled, and how many events it has already."""

    generation: int
    recorded: int


async def begin_restore(connection: Connection, archive: str, consent: Callable[[int, int], None]) -> Restoring:
    """Begin to fill an empty ledger, or a new generation of one that is not; or go on with the same archive.

    `archive` is its digest. `consent` is asked before a generation with so many events is archived, and raises if the
    user refuses.

    Raises:
        NoLedgerError: there is none.
        RestoreInterruptedError: another archive is being restored.
        ClosingError: a generation is being closed.
        LogLostError: the stream of a partition is gone.
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    streams = await ledger_streams(connection)
    if not streams:
        raise NoLedgerError(f"There is no ledger at {connection.address}. Make it with `gpuledger migrate`.")
    newest = max(streams)
    info = await stream_info(connection, stream_name(newest))  # a list of streams lacks some of their metadata
    refuse_closing(connection, newest, info)
    begun = (info.config.metadata or {}).get(RESTORING)
    if begun not in (None, archive):
        raise RestoreInterruptedError(
            f"Generation {newest} at {connection.address} is being restored from another file, and has "
            f"{await _in_log(connection, newest, info):,} of its events. Run `gpuledger log import` with that file "
            "first."
        )
    recorded = await recorded_in(connection, generation_of(newest, info), info)
    if is_archived(newest, info):
        consent(newest, recorded)  # `log restore` may have to go on instead
        await _archive(connection, newest, info)
        return Restoring((await _begin_behind(connection, newest, archive)).number, 0)
    if (begun or not recorded) and await _fence(connection, newest, info, archive):
        return Restoring(newest, await _in_log(connection, newest, info))
    consent(newest, recorded)
    return Restoring((await begin_generation(connection, archive)).number, 0)


async def begin_generation(connection: Connection, archive: str | None = None) -> Generation:
    """Archive the current generation, which stays readable, and begin an empty one with as many partitions.

    With the digest of an `archive` a restore of it fills that one. After a crash in between, everybody finds an
    archived one without a successor, as in the middle of `log restore`, and the restore alone goes on.

    Raises:
        NoLedgerError: there is none.
        StreamConfigError: the current stream is not as a ledger must be.
        PublishError: the server did not take the rest of the order of its partitions.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    current = await open_current(connection)
    await _archive(connection, current.number, await stream_info(connection, current.stream))
    return await _begin_behind(connection, current.number, archive)


async def end_restore(connection: Connection, generation: int) -> None:
    """Open the generation for everybody; what it holds is complete.

    Raises:
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    info = await stream_info(connection, stream_name(generation))
    metadata = {key: value for key, value in (info.config.metadata or {}).items() if key != RESTORING}
    opened = info.config.evolve(metadata=metadata)
    if generation_of(generation, info).partitions > 1:
        await open_restored(connection, generation, info, opened)
    else:
        await update_stream_config(connection, stream_intake(generation).configured(opened))


async def _in_log(connection: Connection, number: int, info: StreamInfo) -> int:
    """How many events of the archive are in the log of the generation that is filled."""
    return number_of(await open_log(connection, generation_of(number, info)).head())


async def _fence(connection: Connection, number: int, info: StreamInfo, archive: str) -> bool:
    """Have an empty generation take the events of the restore alone; False where somebody was faster.

    One that is fenced already stays as it is.
    """
    found, config = generation_of(number, info), _marked(archive, info.config)
    if found.partitions > 1:
        return is_order_fenced(number, info) or await fence_partitions(connection, found, config)
    if info.config == config:
        return True
    await update_stream_config(connection, stream_intake(number, RESTORE_ROOT).configured(config))
    is_empty = not (await stream_info(connection, found.stream)).state.last_seq
    if not is_empty:
        await end_restore(connection, number)
    return is_empty


async def _archive(connection: Connection, number: int, info: StreamInfo) -> None:
    """Take all subjects of a generation away; of one that was interrupted, the rest of them."""
    if generation_of(number, info).partitions > 1:
        metadata = {**(info.config.metadata or {}), ARCHIVED: "restore"}
        await close_partitions(connection, number, info.config.evolve(metadata=metadata))
    elif not is_archived(number, info):
        await update_stream_config(connection, info.config.evolve(subjects=[archive_subject(number)]))


async def _begin_behind(connection: Connection, number: int, archive: str | None) -> Generation:
    """Create the generation behind an archived one, whose end it names; it has its own numbering."""
    info = await stream_info(connection, stream_name(number))
    ended = generation_of(number, info)
    before = identity_of(info.config.metadata, number)
    end = await end_of(connection, ended)
    identity = LedgerIdentity(before.ledger_id if before else "", number + 1, end)
    replicas = info.config.num_replicas or 1
    if ended.partitions == 1:
        fenced = None if archive is None else partial(_fenced_stream, identity.generation, archive)
        return await create_generation(connection, identity, replicas, fenced)
    return await create_partitions(
        connection,
        identity,
        replicas,
        (0,) * ended.partitions,
        intake="" if archive is None else RESTORE_ROOT,
        adapt=None if archive is None else lambda one: fenced_order(_marked(archive, one), identity.generation),
    )


def _fenced_stream(generation: int, archive: str, config: StreamConfig) -> StreamConfig:
    return stream_intake(generation, RESTORE_ROOT).configured(_marked(archive, config))


def _marked(archive: str, config: StreamConfig) -> StreamConfig:
    """The configuration with the digest of the archive that is restored."""
    return config.evolve(metadata={**(config.metadata or {}), RESTORING: archive})
