"""Closes a generation of the log, and begins the next one behind it, in the same numbering.

Each step can be repeated, and each leaves the log whole: the streams' metadata say how far closing has got, so that
whoever was killed goes on. From `fence` to `open_next` nobody records anything: publishers find no ledger and wait.
Only `delete_closed` deletes a stream, whose generation has to be closed, and whose archive its caller has proven.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from nats.js.api import SubjectTransform

from gpuledger.events.position import number_of
from gpuledger.events.subjects import ALL, ROOT
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import ClosingError, NoLedgerError
from gpuledger.ledger.identity import Closed, Continued, LedgerIdentity, identity_of, metadata_of
from gpuledger.ledger.permissions import CLOSING_ROOT
from gpuledger.ledger.stream import (
    BEGINNING,
    CLOSED,
    CLOSED_AT,
    archive_subject,
    check_current,
    create_generation,
    ledger_streams,
    refuse_partitioned,
    stream_info,
    stream_name,
    successor_of,
    update_stream_config,
)

_LEDGER_PREFIX: Final = f"{ROOT}."


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
    refuse_partitioned(streams[newest], "Closing a generation")
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

    Raises:
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    config = (await stream_info(connection, stream_name(generation))).config
    metadata = {**(config.metadata or {}), CLOSED: location, CLOSED_AT: at.isoformat()}
    await update_stream_config(connection, config.evolve(subjects=[archive_subject(generation)], metadata=metadata))


async def begin_next(connection: Connection, generation: int, location: str, link: str) -> LedgerIdentity:
    """Create the generation behind a closed one, which takes what `beginning` gives it and nothing else.

    `link` is the link of the chain of digests at the end of the closed one.

    Raises:
        ClosingError: the closed one is not closed, or has no id.
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    info = await stream_info(connection, stream_name(generation))
    before = identity_of(info.config.metadata, generation)
    if before is None or CLOSED not in (info.config.metadata or {}):
        raise ClosingError(f"Generation {generation} is not closed.")
    successor = await successor_of(connection, info, generation, before.ledger_id)
    ended = Closed(generation, number_of(before.behind), location)
    closed = () if before.continued is None else before.continued.closed
    assert successor.predecessor is not None, "it has the one that was closed"
    continued = Continued((*closed, ended), before.beginning, link, number_of(successor.predecessor.head))
    identity = successor._replace(continued=continued)
    subject = f"{CLOSING_ROOT}.{identity.generation}.>"
    await create_generation(
        connection,
        identity,
        info.config.num_replicas,
        lambda config: config.evolve(
            subjects=[subject],
            subject_transform=SubjectTransform(src=subject, dest=ALL),
            metadata={**(config.metadata or {}), BEGINNING: location},
        ),
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


def beginning(message: Outgoing, generation: int) -> Outgoing:
    """The message under the subject by which a generation records it before it takes events of others."""
    return message._replace(subject=f"{CLOSING_ROOT}.{generation}.{message.subject.removeprefix(_LEDGER_PREFIX)}")


async def open_next(connection: Connection, identity: LedgerIdentity) -> None:
    """Have everybody record events in the generation; what it holds now is its beginning.

    Raises:
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    info = await stream_info(connection, stream_name(identity.generation))
    assert identity.continued is not None, "it goes on from a closed one"
    begun = identity._replace(continued=identity.continued._replace(carried=info.state.last_seq))
    metadata = {key: value for key, value in (info.config.metadata or {}).items() if key != BEGINNING}
    await update_stream_config(
        connection,
        info.config.evolve(subjects=[ALL], subject_transform=None, metadata={**metadata, **metadata_of(begun)}),
    )


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
