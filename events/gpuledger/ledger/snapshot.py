"""Copies a stream from a NATS server into a folder and back, exactly: positions, times, message ids and metadata.

The server takes the copy as of one moment, while others publish. A folder that is not complete is never given back, and
a stream that is there is never replaced.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from gpuledger.events.position import Offset, is_same
from gpuledger.ledger.connect import ROLES_ADVICE, Connection
from gpuledger.ledger.errors import LedgerUnavailableError, StreamConfigError
from gpuledger.ledger.permissions import API
from gpuledger.ledger.queries import unless_denied

CHUNK_BYTES: Final = 128 * 1024
CHUNK_TIMEOUT_S: Final = 60.0
"""How long the server may take for one chunk, and for what it does before the first and after the last."""

DATA: Final = "stream.data"
ABOUT: Final = "stream.json"
"""Written last: configuration and state of the stream, and size and digest of its data."""

_DONE: Final = (None, "204")
"""The status of the empty message after the last chunk; a copy of one chunk ends without any."""

Progress = Callable[[int], None]
"""Called with the bytes so far."""


class StreamCopy(NamedTuple):
    """A stream in a folder: its name, its last position, and the size of its data."""

    name: str
    last_sequence: Offset
    data_bytes: int


async def save_stream(connection: Connection, stream: str, folder: Path, progress: Progress) -> StreamCopy:
    """Copy a stream into a new folder.

    Raises:
        LedgerUnavailableError: the server does not answer, or refuses permission.
        OSError: the folder cannot be made or written.
    """
    async with _snapshot(connection, stream) as (about, chunks):
        with _written(folder, about) as add:
            async for chunk in chunks:
                progress(add(chunk))
    return read_copy(folder)[1]


@contextmanager
def _written(folder: Path, about: dict[str, Any]) -> Iterator[Callable[[bytes], int]]:
    """Adds a chunk to the data in the folder, and returns their size; at the end the folder is complete."""
    folder.mkdir(parents=True)
    digest, size = hashlib.sha256(), 0
    with (folder / DATA).open("wb") as file:

        def add(chunk: bytes) -> int:
            nonlocal size
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
            return size

        yield add
        os.fsync(file.fileno())
    document = {"config": about["config"], "state": about["state"], "bytes": size, "sha256": digest.hexdigest()}
    part = folder / f"{ABOUT}.part"
    part.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    part.rename(folder / ABOUT)


async def load_stream(connection: Connection, folder: Path, progress: Progress) -> StreamCopy:
    """Give a stream back to a server that has none of its name.

    Raises:
        StreamConfigError: the folder is not complete, or the server does not take it.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    about, copy = read_copy(folder)
    asked = orjson.dumps({"config": about["config"], "state": about["state"]})
    target = (await _request(connection, f"{API}.STREAM.RESTORE.{copy.name}", asked))["deliver_subject"]
    sent = 0
    for chunk in _read(folder / DATA):
        await _request(connection, target, chunk)
        sent += len(chunk)
        progress(sent)
    restored = await _request(connection, target, b"")
    if not is_same(restored["state"]["last_seq"], copy.last_sequence):
        raise StreamConfigError(f"{copy.name} ends at {restored['state']['last_seq']}, not at {copy.last_sequence}.")
    return copy


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def read_copy(folder: Path) -> tuple[dict[str, Any], StreamCopy]:
    """What the folder says about its stream, once its data are checked.

    Raises:
        StreamConfigError: the folder is not complete, or was altered.
    """
    try:
        about = orjson.loads((folder / ABOUT).read_bytes())
        with (folder / DATA).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        copy = StreamCopy(about["config"]["name"], about["state"]["last_seq"], about["bytes"])
        intact = digest == about["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StreamConfigError(f"{folder} holds no complete copy of a stream ({error}). Take another copy.") from error
    if not intact:
        raise StreamConfigError(f"{folder} is damaged: its data are not what was written. Take another copy.")
    return about, copy


@asynccontextmanager
async def _snapshot(connection: Connection, stream: str) -> AsyncIterator[tuple[dict[str, Any], AsyncIterator[bytes]]]:
    """What the server says about the stream, and its data in chunks, each acknowledged once it was taken."""
    client, arrived = connection.client, asyncio.Queue[Msg]()
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, cb=arrived.put)
    asked = orjson.dumps({"deliver_subject": inbox, "no_consumers": True, "chunk_size": CHUNK_BYTES})
    try:
        about = await _request(connection, f"{API}.STREAM.SNAPSHOT.{stream}", asked)
        yield about, _chunks(connection, stream, arrived)
    finally:
        if not client.is_closed:
            await subscription.unsubscribe()


async def _chunks(connection: Connection, stream: str, arrived: "asyncio.Queue[Msg]") -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(CHUNK_TIMEOUT_S):
                message = await arrived.get()
        except TimeoutError as error:
            raise LedgerUnavailableError(
                f"NATS at {connection.address} has sent nothing of {stream} for {CHUNK_TIMEOUT_S:g} s. Start again."
            ) from error
        if not message.data:
            status = (message.headers or {}).get("Status")
            if status in _DONE:
                return
            reason = (message.headers or {}).get("Description", status)
            raise LedgerUnavailableError(f"NATS at {connection.address} stopped copying {stream}: {reason}.")
        yield message.data
        if message.reply:  # the last one has none
            await message.respond(b"")


async def _request(connection: Connection, subject: str, body: bytes) -> dict[str, Any]:
    """The answer to a request; it is sent once, because a chunk that is sent twice is there twice."""
    work = connection.client.request(subject, body, timeout=CHUNK_TIMEOUT_S)
    try:
        answer = await unless_denied(connection, work, {subject}, ROLES_ADVICE)
    except NatsError as error:
        raise LedgerUnavailableError(f"NATS at {connection.address} does not answer ({error}). Start again.") from error
    document: dict[str, Any] = orjson.loads(answer.data) if answer.data else {}
    if "error" in document:
        description = document["error"].get("description")
        raise StreamConfigError(f"NATS at {connection.address} does not do it: {description}.")
    return document
