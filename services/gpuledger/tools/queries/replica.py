"""Reads from a server that answers instead of the primary, and says how far its rows reach where that is not the end.

A command that only asks takes no lock and writes nothing there. It waits until the rows of the very transaction that it
reads in hold what the log held when it asked, since two connections may lead to two standbys; a replica that does not
get there in time answers with what it has.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import Final, NamedTuple, TypeVar

from gpuledger.db.engine import AsyncConnection, place_of
from gpuledger.db.readonly import one_moment
from gpuledger.db.replica import past_conflicts, replay_of
from gpuledger.domain.fact import time_of_ns
from gpuledger.events.position import ORIGIN, Generations, Offset, Position, events_up_to, lag
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LogReplacedError
from gpuledger.projection.checkpoint import Checkpoint, live_checkpoints
from gpuledger.projection.continuity import check_ledger
from gpuledger.projection.definition import Projection
from gpuledger.runtime.settings import DATABASE_READ_URL, DATABASE_URL
from gpuledger.tools.errors import ToolError
from gpuledger.tools.reporting import Reporter

REPLICA_WAIT_S: Final = 15.0
"""How long a command waits in all for a replica whose rows do not hold the end of the log yet."""

POLL_S: Final = 0.1
"""How often it looks meanwhile."""

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]


OpenSession = Callable[[str], AbstractAsyncContextManager[AsyncConnection]]
"""Opens a session that only reads, to the server of a URL."""


class _Behind(NamedTuple):
    """A projection whose rows lack events; without a checkpoint it has none."""

    projection: Projection
    events: int
    checkpoint: Checkpoint | None


class Replica:
    """The server that answers one command, by its URL."""

    def __init__(self, url: str, ledger: Ledger, reporter: Reporter, *, wait_s: float = REPLICA_WAIT_S) -> None:
        self.url = url
        self._ledger = ledger
        self._reporter = reporter
        self._wait_s = wait_s
        self._required: dict[str, Projection] = {}
        self._head = ORIGIN
        self._ends_s = 0.0
        self._is_reported = False
        self._is_waiting = False

    def require(self, projections: Iterable[Projection], head: Offset) -> None:
        """Let what is read from now on hold the rows of these projections up to `head`, if that takes not too long."""
        self._required = {projection.name: projection for projection in projections}
        self._head = head
        self._ends_s = asyncio.get_running_loop().time() + self._wait_s
        self._is_reported = False

    async def read(self, work: Work[T], session: OpenSession) -> T:
        """What `work` makes of one moment of the rows; it runs anew, in another session, where recovery cancels it.

        Raises:
            RecoveryConflictError: recovery canceled it each time.
            ToolError: the rows follow another ledger.
        """

        async def once() -> T:
            async with session(self.url) as connection:
                with ExitStack() as waiting:
                    while True:
                        async with one_moment(connection):
                            if await self._is_answering(connection):
                                waiting.close()
                                return await work(connection)
                        self._show_wait(waiting)
                        await asyncio.sleep(POLL_S)

        return await past_conflicts(once)

    def _show_wait(self, waiting: ExitStack) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            waiting.enter_context(self._reporter.progress("Waiting for the read replica"))
            waiting.callback(self._wait_is_over)

    def _wait_is_over(self) -> None:
        self._is_waiting = False

    async def _is_answering(self, connection: AsyncConnection) -> bool:
        """Whether the rows reach what is required, or no time is left; then it is reported how far they do."""
        behind = await self._behind(connection)
        if behind and asyncio.get_running_loop().time() < self._ends_s:
            return False
        if behind and not self._is_reported:
            self._is_reported = True
            await self._report(connection, behind)
        return True

    async def _behind(self, connection: AsyncConnection) -> list[_Behind]:
        found = await live_checkpoints(connection, self._required.values())
        for name, checkpoint in found.items():
            self._confirm(self._required[name], checkpoint)
        lacking = [
            _Behind(projection, self._events_after(found.get(name)), found.get(name))
            for name, projection in self._required.items()
        ]
        return [one for one in lacking if one.events]

    def _events_after(self, checkpoint: Checkpoint | None) -> int:
        if checkpoint is None:
            return events_up_to(self._head)
        return lag(reached(checkpoint, self._ledger.generations), self._head)

    async def _report(self, connection: AsyncConnection, behind: Iterable[_Behind]) -> None:
        alike: dict[Position | None, list[_Behind]] = {}
        for one in behind:
            alike.setdefault(None if one.checkpoint is None else one.checkpoint.at, []).append(one)
        for same in alike.values():
            names = [one.projection.name for one in same]
            self._reporter.message(await as_of(self._ledger, names, same[0].events, same[0].checkpoint))
        replay = await replay_of(connection)
        if not replay.is_current:
            until = (
                "nothing yet" if replay.replayed_at is None else f"what was committed by {replay.replayed_at:%FT%TZ}"
            )
            reason = f", as {replay.reason}" if replay.reason else ""
            self._reporter.message(
                f"The read replica at {place_of(self.url)} has replayed {until}, {replay.delay_s:.0f} s ago{reason}. "
                f"Without {DATABASE_READ_URL} the primary answers."
            )

    def _confirm(self, projection: Projection, checkpoint: Checkpoint) -> None:
        """Return if the rows follow this ledger.

        Raises:
            ToolError: they follow another one.
        """
        try:
            check_ledger(projection, self._ledger, checkpoint)
        except LogReplacedError as error:
            raise ToolError(
                f"{DATABASE_READ_URL} leads to {place_of(self.url)}, which is no standby of ours: {error}",
                f"Name a standby of the server in {DATABASE_URL}, or leave it unset",
            ) from error


def reached(checkpoint: Checkpoint, generations: Generations) -> Offset:
    """Up to where rows hold this log: nothing, where they follow another generation than it has."""
    return checkpoint.position if generations.has(checkpoint.at) else ORIGIN


async def as_of(ledger: Ledger, projections: Sequence[str], events: int, checkpoint: Checkpoint | None) -> str:
    """The line that says how many events rows lack, and up to where they hold the log, with its time of recording.

    The projections have one checkpoint, or none.
    """
    several, names = len(projections) > 1, ", ".join(projections)
    subject = f"Projections {names} are" if several else f"Projection {names} is"
    behind = f"{subject} {events} events behind the log"
    if checkpoint is None:
        return f"{behind}; there are no rows yet."
    last = await ledger.message_at(checkpoint.position) if ledger.generations.has(checkpoint.at) else None
    when = "" if last is None else f", recorded {time_of_ns(last.recorded_ns):%FT%TZ}"
    return f"{behind}; what follows is as of {'their' if several else 'its'} checkpoint, {checkpoint.at}{when}."
