"""Desired devices: the part that follows the newest list of what pools desire of this node's devices.

The list survives a restart without the ledger. An older list must never replace a newer one; and an event that is not a
list of pools for this node changes nothing, so that the last list stays in force.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, NamedTuple

import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.part import BasePart, Recorder, StateStore
from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.node import NodeDevicesWanted, WantedDevice
from gpuledger.events.position import Position, PositionError
from gpuledger.events.publishing import source_kind
from gpuledger.ledger.api import LedgerQueries, Message
from gpuledger.ledger.errors import LedgerError
from gpuledger.ledger.permissions import desired_devices_subject
from gpuledger.runtime.backoff import Backoff, Retries
from gpuledger.runtime.clock import Sleep

REFRESH_S: Final = 30.0
"""How often the ledger is queried without a notification."""

QUERY_AGAIN_S: Final = (0.02, 0.1, 0.5, 2.0)
"""The pauses before the queries that follow a notification: an event is stored a little later, in a batch."""

RETRY: Final = Backoff(first_s=0.5, max_s=30.0)

STUCK_AFTER_S: Final = 4 * REFRESH_S

STATE_KEY: Final = "orders"

log = structlog.get_logger("gpuledger.agent")

Connect = Callable[[], AbstractAsyncContextManager[LedgerQueries]]
"""Connects to the ledger; raises LedgerError where it cannot be queried."""


class ForeignListError(EventError):
    """The event is not from pools, or not for this node."""


class DesiredList(NamedTuple):
    """A list of desired devices, its position in the ledger, and its event."""

    position: Position
    devices: tuple[WantedDevice, ...]
    raw: bytes


class DesiredDevices(BasePart):
    """Puts the desired devices of a node on the board; see `gpuledger.agent.part.Part`.

    `refused` counts the events that were no list for this node.
    """

    name = "desired devices"
    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        node: str,
        board: Board,
        store: StateStore,
        connect: Connect,
        *,
        sleep: Sleep = asyncio.sleep,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self._node = node
        self._board = board
        self._store = store
        self._connect = connect
        self._sleep = sleep
        self._refresh_s = refresh_s
        self._subject = desired_devices_subject(node)
        self._latest: Position | None = None
        self._has_list = False
        self._retries = Retries(RETRY)
        self.refused = 0

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
            log.warning("waiting for desired devices", reason=self.trouble, pause_s=pause_s)
            await self._sleep(pause_s)

    async def _follow(self, ledger: LedgerQueries) -> None:
        """Query after each notification, and periodically."""
        notified = asyncio.Event()
        pauses: Iterator[float] = iter(())
        async with ledger.notified(self._subject, notified.set):
            while True:
                notified.clear()
                await self._query(ledger)
                with suppress(TimeoutError):
                    async with asyncio.timeout(next(pauses, self._refresh_s)):
                        await notified.wait()
                        pauses = iter(QUERY_AGAIN_S)

    async def _query(self, ledger: LedgerQueries) -> None:
        message = await ledger.newest(self._subject)
        self._beat()
        self.trouble = None
        self._retries.reset()
        if message is not None:
            await self._take(Position(ledger.generation, message.sequence), message)
        elif not self._has_list:
            # No pool has ever desired anything of this node, or only in an archived generation.
            self._board.put(desired=())

    async def _take(self, position: Position, message: Message) -> None:
        if self._latest is not None and not position.is_after(self._latest):
            return
        self._latest = position
        try:
            found = read_list(self._node, position, message.data)
        except EventError as error:
            self.refused += 1
            log.error("a list of desired devices is refused", position=str(position), reason=str(error))
            return
        log.info("desired devices", position=str(position), devices=[desired.device for desired in found.devices])
        # Stored before it takes effect: a restart must not go back to the list before.
        await self._store.put(STATE_KEY, stored_text(found))
        self._accept(found)

    def _restore(self) -> None:
        stored = self._store.get(STATE_KEY)
        if stored is None:
            return
        try:
            self._accept(read_stored(self._node, stored))
        except EventError as error:
            log.error("the stored list of desired devices cannot be read; the ledger has it", reason=str(error))

    def _accept(self, found: DesiredList) -> None:
        self._has_list, self._latest = True, found.position
        self._board.put(desired=found.devices)

    def _beat(self) -> None:
        self.alive_at = asyncio.get_running_loop().time()


def read_list(node: str, position: Position, raw: bytes) -> DesiredList:
    """The list at a position of the ledger.

    Raises:
        EventError: the event cannot be decoded, or is no list of pools for this node.
    """
    event = decode(raw)
    if not isinstance(event.data, NodeDevicesWanted):
        raise ForeignListError(f"The event at {position} is {event.type}, not {NodeDevicesWanted.TYPE}.")
    if source_kind(event.source) not in NodeDevicesWanted.PUBLISH_RULE.publishers or event.subject != node:
        raise ForeignListError(
            f"The event at {position} is the list of {event.source} for {event.subject}, not that of pools for {node}."
        )
    return DesiredList(position, event.data.devices, raw)


def stored_text(found: DesiredList) -> bytes:
    """The list in the format of the state store: a line with its position, and its event."""
    return f"{found.position}\n".encode() + found.raw


def read_stored(node: str, stored: bytes) -> DesiredList:
    """The list that `stored_text` wrote.

    Raises:
        EventError: `stored_text` did not write this, or not for this node.
    """
    written, _, raw = stored.partition(b"\n")
    try:
        position = Position.parse(written.decode("ascii", "backslashreplace"))
    except PositionError as error:
        raise ForeignListError(f"The stored list begins with no position: {error}") from error
    return read_list(node, position, raw)
