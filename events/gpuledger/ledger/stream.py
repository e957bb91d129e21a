"""The stream that stores a ledger, as data, and its generations.

A stream that is already there is checked and never altered, except by an operator's commands: `create_ledger` gives an
older one the ledger's id and lets it take batches. Nothing here may delete or purge.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError, ServerError

from gpuledger.events.position import events_up_to, is_origin, next_after, number_of
from gpuledger.events.subjects import ALL
from gpuledger.ledger.connect import REFUSALS, Connection
from gpuledger.ledger.errors import (
    ClosingError,
    GenerationError,
    LogCutError,
    NoLedgerError,
    RestoreInterruptedError,
    StreamConfigError,
)
from gpuledger.ledger.identity import LedgerIdentity, identity_of, metadata_of
from gpuledger.ledger.partitions import Upto, before_of, partitions_of, stream_behind, subjects_taken
from gpuledger.ledger.permissions import CLOSING_ROOT, RESTORE_ROOT
from gpuledger.ledger.single import all_streams
from gpuledger.ledger.stream_check import refuse_differences

DUPLICATE_WINDOW_S = 120.0
"""How long the server remembers ids; publishing gives up well before."""

UNLIMITED = -1

REPLICAS_IN_CLUSTER = 3
"""How many replicas a stream has where nobody says how many, and the cluster has the servers for them."""

RESTORING = "gpuledger.io/restoring"
"""In the metadata of a stream that `gpuledger.ledger.restoring` fills: the digest of the file that it comes from."""

ARCHIVED = "gpuledger.io/archived"
"""In the metadata of the order of several partitions whose generation a restore archives, to begin the next one."""

CLOSED = "gpuledger.io/closed"
"""In the metadata of a stream whose generation is closed: the location of its archive."""

CLOSED_AT = "gpuledger.io/closed-at"
"""In the same metadata: since when nobody has recorded anything there (ISO 8601)."""

BEGINNING = "gpuledger.io/beginning"
"""In the metadata of a stream whose generation begins behind a closed one: takes no events of others yet."""

_TOO_FEW_SERVERS = frozenset({10005, 10074})
"""The cluster has not enough servers with JetStream; the server is in no cluster."""

_CONFIG_REFUSALS = (*REFUSALS, ServerError)
"""A server without a cluster refuses replicas with 500."""

_NAME = re.compile(r"LEDGER_([1-9][0-9]*)")


class Generation(NamedTuple):
    """A stream that stores the ledger, or an archived one; the `current` one is written to.

    `identity` is None in a ledger of before there were ids. With several `partitions` the stream holds their order, and
    `before` is how many messages each of them had in the generations before. `intake` is the first token of the
    subjects by which its one publisher fills it, where nobody else may record anything yet; else it is empty.
    """

    number: int
    current: bool
    identity: LedgerIdentity | None = None
    partitions: int = 1
    before: Upto = ()
    intake: str = ""

    @property
    def stream(self) -> str:
        """The stream's name."""
        return stream_name(self.number)


def stream_name(generation: int) -> str:
    """`LEDGER_<generation>`."""
    return f"LEDGER_{generation}"


def stream_config(generation: int, replicas: int = 1, partitions: int = 1) -> StreamConfig:
    """The configuration that the stream of a generation must have; with several partitions it holds their order."""
    return StreamConfig(
        name=stream_name(generation),
        subjects=subjects_taken(generation, partitions),
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        max_age=0,
        max_msgs=UNLIMITED,
        max_bytes=UNLIMITED,
        max_msgs_per_subject=UNLIMITED,
        deny_delete=True,
        deny_purge=True,
        allow_direct=True,
        allow_atomic=True,
        duplicate_window=DUPLICATE_WINDOW_S,
        num_replicas=replicas,
    )


async def open_current(connection: Connection, replicas: int | None = None) -> Generation:
    """The generation that is written to. `replicas` is checked only where it is given.

    Raises:
        NoLedgerError: there is none.
        RestoreInterruptedError: the newest was archived, and its successor was not made, or not completed.
        ClosingError: it is being closed.
        StreamConfigError: its stream is not as a ledger must be.
        LogCutError: events are missing from it.
        LedgerUnavailableError: the server does not answer.
    """
    streams = await ledger_streams(connection)
    if not streams:
        raise NoLedgerError(
            f"There is no ledger at {connection.address}. Make it once with `gpuledger migrate`; if there was one "
            "before, see docs/operations.md, The log is lost."
        )
    newest = max(streams)
    info = streams[newest]
    check_current(connection, newest, info, replicas)
    return generation_of(newest, info)


def generation_of(number: int, info: StreamInfo) -> Generation:
    """The generation whose stream, or whose order's stream, this is."""
    metadata = info.config.metadata or {}
    intake = CLOSING_ROOT if BEGINNING in metadata else RESTORE_ROOT if RESTORING in metadata else ""
    partitions = partitions_of(metadata)
    is_taking = info.config.subjects == subjects_taken(number, partitions) and not {CLOSED, ARCHIVED} & set(metadata)
    current = bool(intake) or is_taking
    return Generation(number, current, identity_of(metadata, number), partitions, before_of(metadata), intake)


def check_current(connection: Connection, newest: int, info: StreamInfo, replicas: int | None = None) -> None:
    """Accept the stream of the newest generation if the ledger can be read from it and written to it.

    Raises:
        RestoreInterruptedError: it was archived, and its successor was not made, or not completed.
        StreamConfigError: it is not as a ledger must be.
        LogCutError: events are missing from it.
    """
    _refuse_incomplete(connection, newest, info)
    check_config(info.config, newest, replicas)
    check_whole(info)


def has_begun(number: int, info: StreamInfo) -> bool:
    """Whether the newest generation is one that takes events of everybody, by now or at once.

    That of several partitions is from when its beginning is complete: who publishes waits for a partition to be opened.
    """
    found = generation_of(number, info)
    if found.intake != CLOSING_ROOT:
        return found.current and not found.intake
    return found.identity is not None and found.identity.has_beginning


async def open_generation(connection: Connection, number: int) -> Generation:
    """An existing generation, current or archived.

    Raises:
        GenerationError: it does not exist.
        LogCutError: events are missing from it.
    """
    streams = await ledger_streams(connection)
    if number not in streams:
        raise GenerationError(
            f"There is no stream {stream_name(number)}. The generations here are {sorted(streams) or 'none'}."
        )
    check_whole(streams[number])
    return generation_of(number, streams[number])


async def create_ledger(connection: Connection, ledger_id: str, replicas: int | None = None) -> Generation:
    """Make the ledger with this id, or bring an older one up to date: give it the id and let it take batches.

    What has an id keeps it. A stream that is there gets another number of replicas only where one is given.

    Raises:
        RestoreInterruptedError: the newest was archived, and its successor was not made, or not completed.
        StreamConfigError: a stream is there that is not as a ledger must be.
        LedgerUnavailableError: the server does not answer.
    """
    streams = await ledger_streams(connection)
    if not streams:
        return await create_generation(connection, LedgerIdentity(ledger_id, 1), replicas)
    newest = max(streams)
    info = streams[newest]
    _refuse_incomplete(connection, newest, info)
    check_config(info.config, newest)
    identity = identity_of(info.config.metadata, newest) or LedgerIdentity(ledger_id, newest)
    updated = info.config.evolve(
        allow_atomic=True,
        metadata={**(info.config.metadata or {}), **metadata_of(identity)},
        num_replicas=replicas or info.config.num_replicas,
    )
    if updated != info.config:
        await update_stream_config(connection, updated)
    return Generation(newest, True, identity, partitions_of(updated.metadata), before_of(updated.metadata))


async def stream_info(connection: Connection, stream: str) -> StreamInfo:
    """What the server knows of a stream.

    Raises:
        NotFoundError: there is none.
        LedgerUnavailableError: the server does not answer.
    """
    return await connection.request(lambda: connection.jetstream.stream_info(stream))


def archive_subject(generation: int) -> str:
    """The subject of an archived stream; nobody publishes there."""
    return f"archived.{generation}.>"


def check_whole(info: StreamInfo) -> None:
    """Accept a stream that still has everything that was ever recorded in it.

    Raises:
        LogCutError: naming how much is missing.
    """
    state, identity = info.state, identity_of(info.config.metadata, 0)
    behind = stream_behind(info.config.metadata)
    if behind is None:
        behind = 0 if identity is None else number_of(identity.behind)
    recorded = events_up_to(state.last_seq, behind)
    if state.messages != recorded:
        raise LogCutError(
            f"{info.config.name} has recorded {recorded:,} events and holds {state.messages:,}, "
            f"from {state.first_seq:,} on"
        )


def check_config(found: StreamConfig, generation: int, replicas: int | None = None) -> None:
    """Accept a stream that loses nothing; raises as `refuse_differences` does."""
    partitions = partitions_of(found.metadata)
    refuse_differences(found, stream_config(generation, replicas or found.num_replicas or 1, partitions))


def _refuse_incomplete(connection: Connection, generation: int, info: StreamInfo) -> None:
    """Refuse a ledger whose newest generation is being filled, or has no successor yet: who began that goes on."""
    refuse_closing(connection, generation, info)
    if RESTORING in (info.config.metadata or {}):
        count = "" if partitions_of(info.config.metadata) > 1 else f"has {info.state.last_seq:,} events, and "
        raise RestoreInterruptedError(
            f"Generation {generation} at {connection.address} is being restored, or its restore was interrupted: it "
            f"{count}takes no others until it is complete. Wait for `gpuledger log import`, or run it again with the "
            "same file: it goes on where it stopped."
        )
    if is_archived(generation, info):
        raise RestoreInterruptedError(
            f"Generation {generation} at {connection.address} is archived, and there is none after it: a restore was "
            "interrupted. Run it again, `gpuledger log restore` or `gpuledger log import`."
        )


def refuse_closing(connection: Connection, generation: int, info: StreamInfo) -> None:
    """Refuse a ledger of which a generation is being closed, given its newest one.

    Raises:
        ClosingError: it is; only the command that closes goes on.
    """
    metadata = info.config.metadata or {}
    if CLOSED in metadata or BEGINNING in metadata:
        location = metadata.get(CLOSED) or metadata.get(BEGINNING)
        closed = generation if CLOSED in metadata else generation - 1
        raise ClosingError(
            f"Generation {closed} at {connection.address} is being closed, and the next one takes no events yet. Wait "
            f"for `gpuledger log archive close`, or run it again: `gpuledger log archive close {location}`."
        )


def is_archived(generation: int, info: StreamInfo) -> bool:
    """Whether a generation is no longer written to, or a restore takes its subjects away now."""
    return info.config.subjects == [archive_subject(generation)] or ARCHIVED in (info.config.metadata or {})


async def create_generation(
    connection: Connection,
    identity: LedgerIdentity,
    replicas: int | None,
    adapt: Callable[[StreamConfig], StreamConfig] | None = None,
) -> Generation:
    """Create the stream of a generation; raises as `create_stream` does."""
    config = stream_config(identity.generation).evolve(metadata=metadata_of(identity))
    if not is_origin(identity.behind):
        config = config.evolve(first_seq=number_of(next_after(identity.behind)))
    config = config if adapt is None else adapt(config)
    await create_stream(connection, config, replicas)
    return Generation(identity.generation, True, identity, partitions_of(config.metadata), before_of(config.metadata))


async def create_stream(connection: Connection, config: StreamConfig, replicas: int | None) -> None:
    """Create a stream; without a number it has as many replicas as the server can hold, up to three.

    Raises:
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    for count in (REPLICAS_IN_CLUSTER, 1) if replicas is None else (replicas,):
        sized = config.evolve(num_replicas=count)
        try:
            await connection.request(
                lambda sized=sized: connection.jetstream.add_stream(sized),  # type: ignore[misc]
                refusals=_CONFIG_REFUSALS,
            )
        except APIError as error:
            if error.err_code not in _TOO_FEW_SERVERS:
                raise _refused(sized, error, f"Free the subject {ALL} or name another NATS server.") from error
            if count in (replicas, 1):
                raise _refused(sized, error, _FEWER_REPLICAS) from error
        else:
            break


async def update_stream_config(connection: Connection, config: StreamConfig) -> None:
    """Alter a stream.

    Raises:
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    try:
        await connection.request(lambda: connection.jetstream.update_stream(config), refusals=_CONFIG_REFUSALS)
    except APIError as error:
        advice = _FEWER_REPLICAS if error.err_code in _TOO_FEW_SERVERS else "Correct that, and try again."
        raise _refused(config, error, advice) from error


def _refused(config: StreamConfig, error: APIError, advice: str) -> StreamConfigError:
    return StreamConfigError(
        f"The server does not take the stream {config.name} with {config.num_replicas} replicas: {error.description}. "
        f"{advice}"
    )


_FEWER_REPLICAS = "A replica needs a server with JetStream of its own: ask for fewer, or add servers."


async def ledger_streams(connection: Connection) -> dict[int, StreamInfo]:
    """The streams of the ledger by generation.

    Raises:
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    streams = await all_streams(connection)
    return {int(match[1]): info for name, info in streams.items() if (match := _NAME.fullmatch(name))}
