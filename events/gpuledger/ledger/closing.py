"""Closes a generation of the log, and begins the next one behind it, in the same numbering.

Each step can be repeated, and each leaves the log whole: the streams' metadata say how far closing has got, so that
whoever was killed goes on. From `fence` to `open_next` nobody records anything: publishers find no ledger and wait. The
next generation has as many partitions as the one before; the metadata are those of the stream of their order.
Only `delete_closed` deletes a stream, whose generation has to be closed, and whose archive its caller has proven.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from nats.js.api import StreamConfig, StreamInfo

from gpuledger.events.position import number_of
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import ClosingError, NoLedgerError
from gpuledger.ledger.identity import Closed, Continued, LedgerIdentity, identity_of, metadata_of
from gpuledger.ledger.intake import stream_intake
from gpuledger.ledger.open_log import end_of, open_log
from gpuledger.ledger.partition_closing import change, close_partitions, ends_of, open_partitions
from gpuledger.ledger.partition_streams import create_partitions
from gpuledger.ledger.partitions import counted_partitions, partitions_of
from gpuledger.ledger.permissions import CLOSING_ROOT
from gpuledger.ledger.single import all_streams
from gpuledger.ledger.stream import (
    BEGINNING,
    CLOSED,
    CLOSED_AT,
    archive_subject,
    check_current,
    create_generation,
    generation_of,
    ledger_streams,
    stream_info,
    stream_name,
    update_stream_config,
)


class ClosingStep(StrEnum):
    """What a closing that is under way does, or did when it was interrupted."""

    ARCHIVING = "archiving"
    """The generation takes no more events; the rest of them is archived."""

    BEGINNING = "beginning"
    """The next generation is there, and its beginning is recorded."""


class Closing(NamedTuple):
    """How far closing has got: the generation that is closed, the archive's location, and whether the next is there.

    Before the first step there is no location. `since` is when it took that generation's subjects away, so that nobody
    records anything; None also where a build that did not note that has begun it.
    """

    generation: int
    location: str | None
    has_next: bool
    since: datetime | None = None

    @property
    def step(self) -> ClosingStep | None:
        """What it does now; None while the log takes events."""
        if self.location is None:
            return None
        return ClosingStep.BEGINNING if self.has_next else ClosingStep.ARCHIVING


async def closing_state(connection: Connection) -> Closing:
    """How far closing has got; of a ledger that is written to, nothing has begun.

    Raises:
        NoLedgerError: there is no ledger.
        RestoreInterruptedError: a restore has yet to complete it.
        StreamConfigError: its stream is not as a ledger must be.
        LogCutError: events are missing from it.
        LedgerUnavailableError: the server does not answer.
    """
    streams = await ledger_streams(connection)
    if not streams:
        raise NoLedgerError(f"There is no ledger at {connection.address}. Make it with `gpuledger migrate`.")
    newest = max(streams)
    metadata = streams[newest].config.metadata or {}
    if CLOSED in metadata:
        return Closing(newest, metadata[CLOSED], has_next=False, since=_closed_at(metadata))
    if BEGINNING in metadata:
        closed = streams.get(newest - 1)
        since = None if closed is None else _closed_at(closed.config.metadata or {})
        return Closing(newest - 1, metadata[BEGINNING], has_next=True, since=since)
    check_current(connection, newest, streams[newest])
    return Closing(newest, None, has_next=False)


def _closed_at(metadata: Mapping[str, str]) -> datetime | None:
    return datetime.fromisoformat(metadata[CLOSED_AT]) if CLOSED_AT in metadata else None


async def fence(connection: Connection, generation: int, location: str, at: datetime) -> None:
    """Take a generation's subjects away: what it holds now is all that it will ever hold. It stays readable.

    One that was interrupted goes on, and keeps its time.

    Raises:
        StreamConfigError: the server refuses.
        PublishError: the server did not take the rest of the order of its partitions.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    config = (await stream_info(connection, stream_name(generation))).config
    metadata = {CLOSED: location, CLOSED_AT: at.isoformat(), **(config.metadata or {})}
    marked = config.evolve(metadata=metadata)
    if partitions_of(metadata) == 1:
        await change(connection, marked.evolve(subjects=[archive_subject(generation)]))
    else:
        await close_partitions(connection, generation, marked)


async def begin_next(connection: Connection, generation: int, location: str, link: str) -> LedgerIdentity:
    """Create the generation behind a closed one, which takes what whoever opens it now records, and nothing else.

    `link` is the link of the chain of digests at the end of the closed one.

    Raises:
        ClosingError: the closed one is not closed, or has no id.
        LogLostError: a stream of its partitions is there, with events and without their order.
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    info = await stream_info(connection, stream_name(generation))
    before = identity_of(info.config.metadata, generation)
    if before is None or CLOSED not in (info.config.metadata or {}):
        raise ClosingError(f"Generation {generation} is not closed.")
    end = await end_of(connection, generation_of(generation, info))
    ended = Closed(generation, number_of(before.behind), location)
    closed = () if before.continued is None else before.continued.closed
    continued = Continued((*closed, ended), before.beginning, link, number_of(end.head))
    identity = LedgerIdentity(before.ledger_id, generation + 1, end, continued)

    def begun(config: StreamConfig) -> StreamConfig:
        return config.evolve(metadata={**(config.metadata or {}), BEGINNING: location})

    if partitions_of(info.config.metadata) > 1:
        ends = await ends_of(connection, generation, info)
        replicas = info.config.num_replicas
        await create_partitions(connection, identity, replicas, ends, intake=CLOSING_ROOT, adapt=begun)
    else:
        intake = stream_intake(identity.generation, CLOSING_ROOT)
        await create_generation(
            connection, identity, info.config.num_replicas, lambda config: begun(intake.configured(config))
        )
    return identity


async def next_identity(connection: Connection, generation: int) -> LedgerIdentity:
    """The identity of the generation that begins behind a closed one.

    Raises:
        ClosingError: it is not there, or goes on from nothing.
    """
    info = await stream_info(connection, stream_name(generation + 1))
    identity = identity_of(info.config.metadata, generation + 1)
    if identity is None or identity.continued is None:
        raise ClosingError(f"Generation {generation + 1} does not go on from generation {generation}.")
    return identity


async def open_next(connection: Connection, identity: LedgerIdentity) -> None:
    """Have everybody record events in the generation; what it holds now is its beginning.

    Raises:
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    generation = identity.generation
    info = await stream_info(connection, stream_name(generation))
    begun = await _with_beginning(connection, identity, info)
    config = info.config.evolve(metadata={**(info.config.metadata or {}), **metadata_of(begun)})
    opened = config.evolve(metadata={key: one for key, one in (config.metadata or {}).items() if key != BEGINNING})
    if partitions_of(info.config.metadata) > 1:
        await change(connection, config)  # readers go on here before any partition takes events of others
        await open_partitions(connection, generation, info)
        await change(connection, opened)
    else:
        await update_stream_config(connection, stream_intake(generation).configured(opened))


async def _with_beginning(connection: Connection, identity: LedgerIdentity, info: StreamInfo) -> LedgerIdentity:
    """The identity of a generation whose beginning is complete; one that was interrupted has it in its metadata."""
    assert identity.continued is not None, "it goes on from a closed one"
    found = identity_of(info.config.metadata, identity.generation)
    if found is not None and found.has_beginning:
        return found
    head = await open_log(connection, generation_of(identity.generation, info)).head()
    return identity._replace(continued=identity.continued._replace(carried=number_of(head)))


async def delete_closed(connection: Connection, identity: LedgerIdentity, generation: int) -> None:
    """Delete the stream of a generation that the current one, of this identity, goes on from.

    Raises:
        ClosingError: it does not.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    closed = () if identity.continued is None else identity.continued.closed
    info = await stream_info(connection, stream_name(generation))
    if generation not in [one.generation for one in closed] or CLOSED not in (info.config.metadata or {}):
        raise ClosingError(f"Generation {generation} was not closed, so nothing may delete its stream.")
    await connection.request(lambda: connection.jetstream.delete_stream(stream_name(generation)))
    await delete_left(connection, generation)


async def delete_left(connection: Connection, generation: int) -> bool:
    """Delete what a deletion that was interrupted left of a closed generation: partitions without their order.

    Returns:
        Whether there was anything.

    Raises:
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    stream, streams = stream_name(generation), await all_streams(connection)
    names = [] if stream in streams else [one for one in streams if counted_partitions(stream, one)]
    for name in names:
        await connection.request(lambda one=name: connection.jetstream.delete_stream(one))  # type: ignore[misc]
    return bool(names)
