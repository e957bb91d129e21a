"""The newest list about this node that a service records: the parts that follow one put it on the board.

A list survives a restart without the ledger. An older list must never replace a newer one; and an event that is not
the list of its service for this node changes nothing, so that the last list stays in force.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.part import BasePart, Recorder, StateStore
from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.payload import Payload
from gpuledger.events.position import Position, PositionError
from gpuledger.events.publishing import source_kind
from gpuledger.ledger.api import LedgerQueries, Message
from gpuledger.ledger.errors import LedgerError
from gpuledger.runtime.backoff import Backoff, Retries
from gpuledger.runtime.clock import Sleep

REFRESH_S: Final = 30.0
"""How often the ledger is queried without a notification."""

QUERY_AGAIN_S: Final = (0.02, 0.1, 0.5, 2.0)
"""The pauses before the queries that follow a notification: an event is stored a little later, in a batch."""

RETRY: Final = Backoff(first_s=0.5, max_s=30.0)

STUCK_REFRESHES: Final = 4
"""After how many periods without a query a part counts as stuck."""

STORED_BYTES_MAX: Final = 60 * 1024
"""The size of a stored list, less than the outbox takes; a longer one is read from the ledger after a restart."""

log = structlog.get_logger("gpuledger.agent")

Connect = Callable[[], AbstractAsyncContextManager[LedgerQueries]]
"""Connects to the ledger; raises LedgerError where it cannot be queried."""

ListT = TypeVar("ListT", bound=Payload)


class ForeignListError(EventError):
    """The event is not from the service whose list it should be, or not for this node."""


class FoundList(NamedTuple, Generic[ListT]):
    """A list, its position in the ledger, and its event."""

    position: Position
    data: ListT
    raw: bytes


class NodeList(NamedTuple, Generic[ListT]):
    """Which list a part follows: its event type, its subject, its name in the state store, and what to do with it.

    `accept` takes each list as it comes into force, and None where the ledger has none.
    """

    model: type[ListT]
    subject: str
    state_key: str
    accept: Callable[[ListT | None], None]


class ListFollower(BasePart, ABC, Generic[ListT]):
    """Follows one list; see `gpuledger.agent.part.Part`. `refused` counts the events that were no such list."""

    refresh_s: ClassVar[float] = REFRESH_S
    """How often the ledger is queried without a notification, where nobody says otherwise."""

    stuck_after_s = STUCK_REFRESHES * REFRESH_S

    def __init__(
        self,
        node: str,
        board: Board,
        store: StateStore,
        connect: Connect,
        *,
        sleep: Sleep = asyncio.sleep,
        refresh_s: float | None = None,
    ) -> None:
        self._node = node
        self._followed = self.followed(node, board)
        self._store = store
        self._connect = connect
        self._sleep = sleep
        self._refresh_s = self.refresh_s if refresh_s is None else refresh_s
        self._latest: Position | None = None
        self._has_list = False
        self._retries = Retries(RETRY)
        self.refused = 0

    @staticmethod
    @abstractmethod
    def followed(node: str, board: Board) -> NodeList[ListT]:
        """The list about the node, which is put on the board."""

    async def run(self, record: Recorder) -> None:  # noqa: ARG002 - it records nothing
        """Follow the ledger until cancelled; while it is unavailable, the last list stays in force."""
        self._restore()
        while True:
            try:
                async with self._connect() as ledger:
                    await self._follow(ledger)
            except LedgerError as error:
                self.trouble = str(error)
            self._beat()
            pause_s = self._retries.pause_s()
            log.warning("waiting for a list", part=self.name, reason=self.trouble, pause_s=pause_s)
            await self._sleep(pause_s)

    async def _follow(self, ledger: LedgerQueries) -> None:
        """Query after each notification, and periodically."""
        notified = asyncio.Event()
        pauses: Iterator[float] = iter(())
        async with ledger.notified(self._followed.subject, notified.set):
            while True:
                notified.clear()
                await self._query(ledger)
                with suppress(TimeoutError):
                    async with asyncio.timeout(next(pauses, self._refresh_s)):
                        await notified.wait()
                        pauses = iter(QUERY_AGAIN_S)

    async def _query(self, ledger: LedgerQueries) -> None:
        message = await ledger.newest(self._followed.subject)
        self._beat()
        self.trouble = None
        self._retries.reset()
        if message is not None:
            await self._take(Position(ledger.generation, message.sequence), message)
        elif not self._has_list:
            # Nobody has ever recorded one for this node, or only in an archived generation.
            self._followed.accept(None)

    async def _take(self, position: Position, message: Message) -> None:
        if self._latest is not None and not position.is_after(self._latest):
            return
        self._latest = position
        try:
            found = read_node_list(self._followed.model, self._node, position, message.data)
        except EventError as error:
            self.refused += 1
            log.error("a list is refused", part=self.name, position=str(position), reason=str(error))
            return
        log.info("a new list", part=self.name, position=str(position))
        # Stored before it takes effect: a restart must not go back to the list before.
        await self._save(found)
        self._accept(found)

    async def _save(self, found: FoundList[ListT]) -> None:
        text = stored_text(found)
        if len(text) > STORED_BYTES_MAX:
            log.warning("a list is too long to be stored over a restart", part=self.name, bytes=len(text))
            text = b""
        await self._store.put(self._followed.state_key, text)

    def _restore(self) -> None:
        stored = self._store.get(self._followed.state_key)
        if not stored:
            return
        try:
            self._accept(read_stored_list(self._followed.model, self._node, stored))
        except EventError as error:
            log.error("a stored list cannot be read; the ledger has it", part=self.name, reason=str(error))

    def _accept(self, found: FoundList[ListT]) -> None:
        self._has_list, self._latest = True, found.position
        self._followed.accept(found.data)

    def _beat(self) -> None:
        self.alive_at = asyncio.get_running_loop().time()


def read_node_list(model: type[ListT], node: str, position: Position, raw: bytes) -> FoundList[ListT]:
    """The list at a position of the ledger.

    Raises:
        EventError: the event cannot be decoded, or is no such list for this node.
    """
    event = decode(raw)
    if not isinstance(event.data, model):
        raise ForeignListError(f"The event at {position} is {event.type}, not {model.TYPE}.")
    publishers = model.PUBLISH_RULE.publishers
    if source_kind(event.source) not in publishers or event.subject != node:
        raise ForeignListError(
            f"The event at {position} is the list of {event.source} for {event.subject}, not that of "
            f"{', '.join(publishers)} for {node}."
        )
    return FoundList(position, event.data, raw)


def stored_text(found: FoundList[ListT]) -> bytes:
    """The list in the format of the state store: a line with its position, and its event."""
    return f"{found.position}\n".encode() + found.raw


def read_stored_list(model: type[ListT], node: str, stored: bytes) -> FoundList[ListT]:
    """The list that `stored_text` wrote.

    Raises:
        EventError: `stored_text` did not write this, or not for this node.
    """
    written, _, raw = stored.partition(b"\n")
    try:
        position = Position.parse(written.decode("ascii", "backslashreplace"))
    except PositionError as error:
        raise ForeignListError(f"The stored list begins with no position: {error}") from error
    return read_node_list(model, node, position, raw)
