"""The stream that stores a ledger, as data, and its generations.

A stream that is already there is checked and never altered, with two exceptions: it is allowed to take batches, and
`begin_generation` takes its subjects away. Nothing here may delete or purge.
"""

import logging
import re
from typing import NamedTuple

from nats.errors import Error as NatsError
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError

from gpuledger.events.subjects import ALL
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import GenerationError, StreamConfigError

DUPLICATE_WINDOW_S = 120.0
"""How long the server remembers ids; publishing gives up well before."""

UNLIMITED = -1

_log = logging.getLogger("gpuledger.ledger")
_NAME = re.compile(r"LEDGER_([1-9][0-9]*)")


class Generation(NamedTuple):
    """A stream that stores the ledger, or an archived one; the `current` one is written to."""

    number: int
    current: bool

    @property
    def stream(self) -> str:
        """The stream's name."""
        return stream_name(self.number)


def stream_name(generation: int) -> str:
    """`LEDGER_<generation>`."""
    return f"LEDGER_{generation}"


def stream_config(generation: int, replicas: int = 1) -> StreamConfig:
    """The configuration that the stream of a generation must have."""
    return StreamConfig(
        name=stream_name(generation),
        subjects=[ALL],
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


async def ensure_stream(connection: Connection, replicas: int | None = None) -> Generation:
    """The generation that is written to; its stream is created where there is none.

    `replicas` is checked only where it is given, and a new stream has one without it.

    Raises:
        StreamConfigError: a stream is there that is not as a ledger must be.
        LedgerUnavailableError: the server does not answer.
    """
    streams = await _ledger_streams(connection)
    if not streams:
        return await _create(connection, 1, replicas or 1)
    newest = max(streams)
    subjects = streams[newest].config.subjects or []
    if subjects == [archive_subject(newest)]:
        return await _create(connection, newest + 1, replicas or 1)
    check_config(streams[newest].config, newest, replicas)
    await _allow_batches(connection, streams[newest].config)
    return Generation(newest, current=True)


async def open_generation(connection: Connection, number: int) -> Generation:
    """An existing generation, current or archived.

    Raises:
        GenerationError: it does not exist.
    """
    streams = await _ledger_streams(connection)
    if number not in streams:
        raise GenerationError(
            f"There is no stream {stream_name(number)}. The generations here are {sorted(streams) or 'none'}."
        )
    return Generation(number, current=streams[number].config.subjects == [ALL])


async def begin_generation(connection: Connection, replicas: int | None = None) -> Generation:
    """Archive the current stream, which stays readable, and begin an empty one; for a restore.

    Repeating it after a crash in between goes on where it stopped: `ensure_stream` finds the archived one and creates
    its successor.

    Raises:
        StreamConfigError: the current stream is not as a ledger must be.
        LedgerUnavailableError: the server does not answer.
    """
    current = await ensure_stream(connection, replicas)
    info = await connection.request(lambda: connection.jetstream.stream_info(current.stream))
    archived = info.config.evolve(subjects=[archive_subject(current.number)])
    await connection.request(lambda: connection.jetstream.update_stream(archived))
    return await _create(connection, current.number + 1, info.config.num_replicas or 1)


def archive_subject(generation: int) -> str:
    """The subject of an archived stream; nobody publishes there."""
    return f"archived.{generation}.>"


def check_config(found: StreamConfig, generation: int, replicas: int | None = None) -> None:
    """Accept a stream that loses nothing.

    A limit of size is accepted, because with `discard: new` it refuses the newest and drops nothing.

    Raises:
        StreamConfigError: naming every difference.
    """
    required = stream_config(generation, replicas or found.num_replicas or 1)
    differences = [
        f"{field} is {_plain(getattr(found, field))}, not {_plain(getattr(required, field))}"
        for field in _CHECKED
        if _plain(getattr(found, field)) != _plain(getattr(required, field))
    ]
    if _plain(found.persist_mode) == "async":
        differences.append("persist_mode is async, which acknowledges events before they are on disk")
    if found.allow_msg_ttl:
        differences.append("allow_msg_ttl is on, which lets publishers have their events deleted")
    if differences:
        raise StreamConfigError(
            f"The stream {required.name} cannot store a ledger: {'; '.join(differences)}. "
            f"Correct it with `nats stream edit {required.name}`, or name another NATS server."
        )


_CHECKED = (
    "subjects",
    "retention",
    "storage",
    "discard",
    "max_age",
    "max_msgs_per_subject",
    "deny_delete",
    "deny_purge",
    "duplicate_window",
    "num_replicas",
)


def _plain(value: object) -> object:
    return getattr(value, "value", value)


async def _allow_batches(connection: Connection, found: StreamConfig) -> None:
    """Try it once, because a ledger without batches is only slower."""
    if found.allow_atomic:
        return
    try:
        await connection.jetstream.update_stream(found.evolve(allow_atomic=True))
    except NatsError as error:
        _log.info("the stream %s stays without batches: %s", found.name, error)


async def _create(connection: Connection, generation: int, replicas: int) -> Generation:
    config = stream_config(generation, replicas)
    try:
        await connection.request(lambda: connection.jetstream.add_stream(config))
    except APIError as error:
        raise StreamConfigError(
            f"The server does not create the stream {config.name}: {error.description}. "
            f"Free the subject {ALL} or name another NATS server."
        ) from error
    return Generation(generation, current=True)


async def _ledger_streams(connection: Connection) -> dict[int, StreamInfo]:
    found: dict[int, StreamInfo] = {}
    offset = 0
    while page := await _page(connection, offset):
        offset += len(page)
        for info in page:
            if match := _NAME.fullmatch(info.config.name or ""):
                found[int(match[1])] = info
    return found


async def _page(connection: Connection, offset: int) -> list[StreamInfo]:
    return await connection.request(lambda: connection.jetstream.streams_info(offset))
