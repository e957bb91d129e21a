"""A generation that a restore fills: nothing else is recorded in it until it is complete.

Its stream listens on subjects of the restore alone, and stores what comes there under the events' own subjects. Whoever
publishes events meanwhile finds no ledger, and waits as for a server that is away.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from nats.js.api import StreamConfig

from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import NoLedgerError, RestoreInterruptedError
from gpuledger.ledger.intake import stream_intake
from gpuledger.ledger.permissions import RESTORE_ROOT
from gpuledger.ledger.stream import (
    RESTORING,
    begin_generation,
    create_generation,
    is_archived,
    ledger_streams,
    refuse_closing,
    refuse_partitioned,
    stream_info,
    stream_name,
    successor_of,
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
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    streams = await ledger_streams(connection)
    if not streams:
        raise NoLedgerError(f"There is no ledger at {connection.address}. Make it with `gpuledger migrate`.")
    newest = max(streams)
    info = streams[newest]
    refuse_partitioned(info, "Restoring")
    refuse_closing(connection, newest, info)
    begun = (info.config.metadata or {}).get(RESTORING)
    if begun == archive:
        return Restoring(newest, info.state.last_seq)
    if begun is not None:
        raise RestoreInterruptedError(
            f"Generation {newest} at {connection.address} is being restored from another file, and has "
            f"{info.state.last_seq:,} of its events. Run `gpuledger log import` with that file first."
        )
    if is_archived(newest, info):
        consent(newest, info.state.last_seq)  # `log restore` may have to go on instead
        identity = await successor_of(connection, info, newest, "")
        await create_generation(connection, identity, info.config.num_replicas, partial(_fenced, newest + 1, archive))
        return Restoring(newest + 1, 0)
    if not info.state.last_seq:
        await update_stream_config(connection, _fenced(newest, archive, info.config))
        if not (await stream_info(connection, stream_name(newest))).state.last_seq:
            return Restoring(newest, 0)
        await end_restore(connection, newest)  # somebody was faster
    consent(newest, info.state.last_seq)
    await begin_generation(connection, adapt=partial(_fenced, newest + 1, archive))
    return Restoring(newest + 1, 0)


async def end_restore(connection: Connection, generation: int) -> None:
    """Open the generation for everybody; what it holds is complete.

    Raises:
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    config = (await stream_info(connection, stream_name(generation))).config
    metadata = {key: value for key, value in (config.metadata or {}).items() if key != RESTORING}
    await update_stream_config(connection, stream_intake(generation).configured(config.evolve(metadata=metadata)))


def _fenced(generation: int, archive: str, config: StreamConfig) -> StreamConfig:
    config = stream_intake(generation, RESTORE_ROOT).configured(config)
    return config.evolve(metadata={**(config.metadata or {}), RESTORING: archive})
