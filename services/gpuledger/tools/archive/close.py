"""Closes a generation: its events are archived and proven, and the log goes on in a new stream behind them.

Each step can be repeated and leaves the log whole, so whoever is killed runs the command again. Publishers wait from
the fence until the next generation is open, which takes as long as what was recorded since the archive was written.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.domain.fact import time_of_ns
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.ids import derived_id
from gpuledger.events.ledger import LedgerArchived
from gpuledger.events.position import (
    ORIGIN,
    Offset,
    events_up_to,
    is_after,
    is_origin,
    is_same,
    lag,
    next_after,
    number_of,
    order,
)
from gpuledger.events.publishing import Rule
from gpuledger.events.rule import rule_subject
from gpuledger.events.subjects import source_filter
from gpuledger.ledger.api import Ledger, Message, Outgoing
from gpuledger.ledger.closing import (
    Closing,
    begin_next,
    closing_state,
    delete_closed,
    delete_left,
    fence,
    next_identity,
    open_next,
)
from gpuledger.ledger.connect import Connection, connected
from gpuledger.ledger.errors import GenerationError
from gpuledger.ledger.identity import LedgerIdentity
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.partition_size import log_size
from gpuledger.ledger.permissions import node_list_filters
from gpuledger.ledger.stream import stream_info, stream_name
from gpuledger.projection.replay import SKIPS, skipped_positions
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.settings import Servers
from gpuledger.tools.applied_documents import DOCUMENT_SUBJECTS
from gpuledger.tools.archive.due import ClosingPolicy, is_due
from gpuledger.tools.archive.manifest import Manifest
from gpuledger.tools.archive.store import NAME, Archive, changing
from gpuledger.tools.archive.verify import verify_generation
from gpuledger.tools.archive.write import write_generation
from gpuledger.tools.errors import RequestError, ToolError
from gpuledger.tools.operators import operator
from gpuledger.tools.queries.backend import all_projections
from gpuledger.tools.reporting import Reporter

REST_MAX: Final = 20_000
"""With more events behind the archive it is written once more before the fence: publishers wait for the rest."""

WRITES_MAX: Final = 8
"""How often, before the fence comes anyway."""


class ClosedLog(NamedTuple):
    """The generation that was closed, its first and last position, and how many events the next one repeats."""

    generation: int
    first: Offset
    last: Offset
    location: str
    carried: int

    @property
    def events(self) -> int:
        """How many events it has."""
        return events_up_to(self.last, self.first) + 1


async def close_generation(
    servers: Servers,
    archive: Archive,
    reporter: Reporter,
    now: datetime,
    policy: ClosingPolicy | None = None,
    *,
    clock: Clock = system_clock,
) -> ClosedLog | None:
    """Close the current generation, or go on with closing one; with a policy only where it is due `now`, else None.

    Raises:
        RequestError: there is nothing to close, or another archive is being written.
        ToolError: the archive is not what the log holds; nothing was closed.
        ToolBusyError: another command changes archives.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    async with connected(servers.nats_url, name=NAME, identity=servers.nats_identity) as connection:
        work = _Closing(servers, archive, reporter, connection)
        async with changing(servers.database_url, await work.ledger_id()):
            state = await closing_state(connection)
            work.refuse_other(state)
            if state.location is None and policy is not None and not await work.is_due(state.generation, policy, now):
                return None
            if state.location is None:
                await work.archive_and_prove(state.generation)
            if not state.has_next:
                await fence(connection, state.generation, archive.url, clock())
                manifest = await work.archive_rest(state.generation)
                await begin_next(connection, state.generation, archive.url, manifest.link)
            return await work.begin(state.generation, now)


class DeletedStream(NamedTuple):
    """The generation whose stream is gone, and how many events it had."""

    generation: int
    events: int


async def delete_stream(
    servers: Servers, archive: Archive, generation: int, reporter: Reporter, consent: Callable[[int], None]
) -> DeletedStream:
    """Delete the stream of a closed generation, once its archive is proven to be what the stream holds.

    `consent` asks the user, given how many events the stream holds, and raises if they refuse.

    Raises:
        RequestError: the generation was not closed, or its stream is gone already.
        ToolError: the archive is not what the stream holds; nothing was deleted.
        ToolBusyError: another command changes archives.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    async with AsyncExitStack() as stack:
        identity = servers.nats_identity
        connection = await stack.enter_async_context(connected(servers.nats_url, name=NAME, identity=identity))
        opening = connect_ledger(servers.nats_url, name=NAME, identity=identity)
        current = (await stack.enter_async_context(opening)).identity
        await stack.enter_async_context(changing(servers.database_url, current.ledger_id))
        work = _Closing(servers, archive, reporter, connection)
        if generation not in current.generations.before(current.generation):
            raise RequestError(f"Generation {generation} was not closed", "`gpuledger log archive close` closes one")
        events = events_up_to(current.generations.end(generation), current.generations.behind(generation))
        if await delete_left(connection, generation):
            return DeletedStream(generation, events)  # one that was interrupted had proven the archive, and has asked
        await work.prove_closed(generation, current)
        consent(events)
        await delete_closed(connection, current, generation)
        return DeletedStream(generation, events)


class _Closing:
    """The steps of closing."""

    def __init__(self, servers: Servers, archive: Archive, reporter: Reporter, connection: Connection) -> None:
        self._servers = servers
        self._archive = archive
        self._reporter = reporter
        self._connection = connection

    async def ledger_id(self) -> str:
        """The id of the ledger, whatever closing has got to."""
        state = await closing_state(self._connection)
        async with self._opened(state.generation) as ledger:
            return ledger.identity.ledger_id

    def refuse_other(self, state: Closing) -> None:
        """Refuse another archive than the one that closing was begun with."""
        if state.location not in (None, self._archive.url):
            raise RequestError(
                f"Generation {state.generation} is being closed with the archive at {state.location}",
                f"Run `gpuledger log archive close {state.location}` first",
            )

    async def is_due(self, generation: int, policy: ClosingPolicy, now: datetime) -> bool:
        """Whether the policy has the generation closed; one without events of its own is not."""
        async with self._opened(generation) as ledger:
            if not await self._has_events(ledger):
                return False
            first = await ledger.message_at(next_after(ledger.identity.behind))
        assert first is not None, "it has events"
        info = await stream_info(self._connection, stream_name(generation))
        size = await log_size(self._connection, generation, info)
        return is_due(policy, time_of_ns(first.recorded_ns), size.size_bytes, now)

    async def archive_and_prove(self, generation: int) -> None:
        """Write the archive up to about now, and prove that it is what the log holds."""
        async with self._opened(generation) as ledger:
            if not await self._has_events(ledger):
                raise RequestError(
                    f"Generation {generation} holds no event beyond its beginning", "There is nothing to close"
                )
            for _ in range(WRITES_MAX):
                await write_generation(self._archive, ledger, self._reporter)
                manifest = await self._manifest(generation)
                if lag(manifest.end, await ledger.head()) <= REST_MAX:
                    break
            proof = await verify_generation(self._archive, manifest, ledger, self._reporter)
            if proof.first_break is not None:
                raise ToolError(
                    f"The archive at {self._archive.url} is not what the log holds: {proof.first_break}",
                    "Nothing was closed. Keep that archive, and name another location",
                )

    async def archive_rest(self, generation: int) -> Manifest:
        """Write what was recorded until the fence; nothing is recorded behind that."""
        async with self._opened(generation) as ledger:
            await write_generation(self._archive, ledger, self._reporter)
        return await self._manifest(generation)

    async def prove_closed(self, generation: int, current: LedgerIdentity) -> None:
        """Prove that the archive is what the stream of a closed generation holds, and what the next one goes on from.

        Months that retention deleted are gone with the stream, so the archive has to have every file.
        """
        manifests = await self._archive.manifests()
        manifest = manifests.get(generation)
        if manifest is None:
            raise RequestError(f"{self._archive.url} does not hold generation {generation}", "Name its archive")
        try:
            async with self._opened(generation) as ledger:
                proof = await verify_generation(self._archive, manifest, ledger, self._reporter)
        except GenerationError as error:
            raise RequestError(f"Generation {generation} has no stream any more", "Nothing was deleted") from error
        problem = proof.first_break
        if not is_same(manifest.end, current.generations.end(generation)):
            problem = problem or f"it ends at {manifest.until}"
        if not proof.is_compared:
            problem = problem or "it was not compared"
        if problem is not None:
            raise ToolError(
                f"The archive at {self._archive.url} is not what generation {generation} holds: {problem}",
                "Nothing was deleted",
            )

    async def begin(self, generation: int, now: datetime) -> ClosedLog:
        """Record the beginning of the next generation, as far as it is not there, and open it."""
        manifest = await self._manifest(generation)
        identity = await next_identity(self._connection, generation)
        async with AsyncExitStack() as stack:
            closed = await stack.enter_async_context(self._opened(generation))
            following = await stack.enter_async_context(self._opened(identity.generation))
            messages = [_archived(manifest, self._archive.url, now)]
            messages += [
                Outgoing(one.subject, _message_id(generation, number), one.data)
                for number, one in enumerate(await carried_messages(closed), 1)
            ]
            recorded = events_up_to(await following.head(), identity.behind)
            await following.publish_many(messages[recorded:])
        await open_next(self._connection, identity)
        first = next_after(manifest.identity.behind)
        return ClosedLog(generation, first, manifest.end, self._archive.url, len(messages) - 1)

    async def _has_events(self, ledger: JetStreamLedger) -> bool:
        """Whether it holds events beyond its beginning."""
        continued = ledger.identity.continued
        return is_after(await ledger.head(), ORIGIN if continued is None else continued.carried)

    async def _manifest(self, generation: int) -> Manifest:
        return (await self._archive.manifests())[generation]

    def _opened(self, generation: int) -> AbstractAsyncContextManager[JetStreamLedger]:
        return connect_ledger(
            self._servers.nats_url, name=NAME, generation=generation, identity=self._servers.nats_identity
        )


def _archived(manifest: Manifest, location: str, now: datetime) -> Outgoing:
    """The event that begins the next generation; its id and number are the same for every repeat."""
    last = manifest.files[-1]
    data = LedgerArchived(
        generation=manifest.generation,
        first=number_of(next_after(manifest.identity.behind)),
        last=last.last,
        digest=last.last_digest,
        link=last.link,
        location=location,
    )
    name, subject = f"{manifest.ledger_id}/{manifest.generation}", str(manifest.generation)
    event_id, epoch = derived_id(name, data.TYPE, subject), f"closing/{name}"
    event = Event(event_id, operator(), data.TYPE, subject, now, data, epoch, 1)
    return Outgoing(nats_subject_of(event), _message_id(manifest.generation, 0), encode(event))


def _message_id(generation: int, number: int) -> str:
    return f"closing/{generation}/{number}"


async def carried_messages(closed: Ledger) -> list[Message]:
    """What agents and services ask the log for, wherever it stands in it, in the order of the log.

    Agents ask for the newest lists about their nodes, and whether names share a subject. Services read the positions
    that operators skip, deciders look for their own last event, and who applies rules for those in force. Every fold
    passes over repeats, by their numbers.
    """
    behind = closed.identity.behind
    skipped = set(await skipped_positions(closed))
    found = {message.data: message async for message in _each(closed, behind, SKIPS)}
    async for message in _each(closed, behind, rule_subject(Rule.SHARED_SUBJECTS)):
        if closed.generations.position(message.sequence) not in skipped:
            found[message.data] = message
    for lists in node_list_filters():
        newest = {message.subject: message async for message in _each(closed, behind, lists)}
        found |= {message.data: message for message in newest.values()}
    decisions = [source_filter(one.source) for one in all_projections() if one.decides]
    for asked in (*decisions, *DOCUMENT_SUBJECTS):
        last = await closed.last_sequence(asked)
        message_there = None if is_origin(last) else await closed.message_at(last)
        if message_there is not None:
            found[message_there.data] = message_there
    return sorted(found.values(), key=lambda one: order(one.sequence))


async def _each(ledger: Ledger, after: Offset, subject_filter: str) -> AsyncIterator[Message]:
    batches: AsyncIterator[Sequence[Message]] = ledger.history(after, subject_filter=subject_filter)
    async for batch in batches:
        for message in batch:
            yield message
