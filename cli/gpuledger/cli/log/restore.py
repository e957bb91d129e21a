"""`gpuledger log import`: an exported log becomes the ledger: an empty one, or a new generation beside the old.

What was recorded stays as it was: subjects, ids, numbers and order, and when it was recorded first. Nothing is begun
before the whole file is known to be sound, nor while somebody projects the log that is to be replaced.
"""

from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

import orjson
import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.replay import rebuild_all
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.log.archive import Header, messages, verified
from gpuledger.cli.log.operator import consent, skip_positions
from gpuledger.cli.log.skip import Yes
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import message, progress
from gpuledger.cli.run import run
from gpuledger.cli.times import format_time
from gpuledger.db.engine import connect
from gpuledger.db.locks import try_lock
from gpuledger.domain.fact import time_of_ns
from gpuledger.events.envelope import decode, parse
from gpuledger.events.errors import EventError
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.ledger.api import Ledger, Message, Outgoing, Position
from gpuledger.ledger.connect import connected
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.stream import begin_generation
from gpuledger.projection.runner import writer_lock
from gpuledger.projection.store import Decider, Store
from gpuledger.runtime.clock import random_id
from gpuledger.tools.queries.backend import Backend, all_projections, bring_current

MESSAGES_PER_PUBLISH = 2_000
SKIP_SUBJECTS_END = f".{SourcePositionSkipped.EVENT}"

Archive = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `gpuledger log export` wrote.")]


class Restored(NamedTuple):
    """What was done."""

    generation: int
    events: int
    skips: int


def restore(archive: Archive, yes: Yes = False, data_dir: DataDir = None) -> None:
    """Restore an exported log: into an empty ledger, or as a new generation of one that is not."""
    header = verified(archive)
    restored = run(_restore(data_dir, archive, header, yes=yes))
    skips = f" {restored.skips} skipped positions hold again." if restored.skips else ""
    message(f"Restored {restored.events:,} events as generation {restored.generation}.{skips}")


async def _restore(data_dir: Path | None, archive: Path, header: Header, *, yes: bool) -> Restored:
    async with open_backend(data_dir, "log import") as backend, AsyncExitStack() as stack:
        await _refuse_writers(backend)
        before = await backend.ledger.head()
        if before:
            old = backend.ledger.generation
            consent(f"The ledger holds {before:,} events: keep them as generation {old}, and go on anew?", given=yes)
            async with connected(backend.nats_url, name="gpuledger log import") as connection:
                await begin_generation(connection)
            ledger = await stack.enter_async_context(connect_ledger(backend.nats_url, name="gpuledger log import"))
        else:
            ledger = backend.ledger
        skips = await _publish(ledger, archive, header)
        await _project(backend, ledger)
        return Restored(ledger.generation, header.events, skips)


async def _refuse_writers(backend: Backend) -> None:
    """Nobody may be folding, into rows and decisions, the log that is to become another."""
    async with connect(backend.database_url, application_name="gpuledger log import") as connection:
        for projection in all_projections():
            if not await try_lock(connection, writer_lock(projection.name)):
                hint = "Stop `gpuledger up`, import, and start it again"
                raise CliError(f"Projection {projection.name} is being written by another process", hint, ExitCode.BUSY)


async def _publish(ledger: Ledger, archive: Path, header: Header) -> int:
    """Record every message of the archive; returns how many skipped positions were carried over."""
    prefix, reasons = random_id(), _skipped_in(archive, header)
    skips: list[tuple[Position, str]] = []
    incoming = messages(archive)
    with progress("Restoring", total=header.events, unit="events") as advance:
        while chunk := list(islice(incoming, MESSAGES_PER_PUBLISH)):
            receipts = await ledger.publish_many([_outgoing(one, prefix) for one in chunk])
            for one, receipt in zip(chunk, receipts, strict=True):
                if reason := reasons.get(one.sequence):
                    skips.append((Position(ledger.generation, receipt.sequence), reason))
            advance(len(chunk))
    if ledger.generation == header.generation:
        return 0
    return len(await skip_positions(ledger, skips)) if skips else 0


def _skipped_in(archive: Path, header: Header) -> dict[int, str]:
    """The positions that operators skipped, with their reasons: they name a generation, which is another now."""
    wanted: dict[int, str] = {}
    for one in messages(archive):
        if not one.subject.endswith(SKIP_SUBJECTS_END):
            continue
        try:
            data = decode(one.data).data
        except EventError:
            continue
        if isinstance(data, SourcePositionSkipped) and data.generation == header.generation:
            wanted[data.sequence] = f"Restored: {data.reason}"[:NAME_LENGTH_MAX]
    return wanted


def _outgoing(one: Message, prefix: str) -> Outgoing:
    """The message as it was, under an id of this restore's own for the broker.

    The broker drops what repeats an id within its window, and a log may hold an event's id twice; the event keeps its
    id, and sources' numbers tell repeats from others.
    """
    return Outgoing(one.subject, f"{prefix}/{one.sequence}", _with_recorded_time(one))


def _with_recorded_time(one: Message) -> bytes:
    """The event with the time of its first recording, where it bears none; what is no event stays as it is."""
    try:
        if parse(one.data).recorded_at is not None:
            return one.data
    except EventError:
        return one.data
    return orjson.dumps(orjson.loads(one.data) | {"recordedtime": format_time(time_of_ns(one.recorded_ns))})


async def _project(backend: Backend, ledger: JetStreamLedger) -> None:
    """Bring the tables to the restored log."""
    if ledger.generation == backend.ledger.generation:
        await _settle_deciders(backend, ledger)
        await bring_current(backend)
        return
    await rebuild_all(replace(backend, ledger=ledger), all_projections())


async def _settle_deciders(backend: Backend, ledger: Ledger) -> None:
    """What was decided in the restored log is the past: a decider that started on the empty one must see it first."""
    head = await ledger.head()
    async with connect(backend.database_url, application_name="gpuledger log import") as connection:
        for projection in all_projections():
            if projection.decides:
                await Store(connection, projection).create_decider(Decider(random_id(), 1, head))
