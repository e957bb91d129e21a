"""What pools want of this node's devices, as the ledger says it: the newest list counts, and replaces the last.

It is known over a restart without the ledger. An older list must never replace a newer one, and one that is no list of
pools' for this node changes nothing: what was wanted before is still wanted then.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, NamedTuple

import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.part import Recorder, StateStore
from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.node import NodeDevicesWanted, WantedDevice
from gpuledger.events.publishing import source_kind
from gpuledger.ledger.api import LedgerQueries, Message, Position
from gpuledger.ledger.errors import LedgerError
from gpuledger.ledger.permissions import desired_devices_subject
from gpuledger.runtime.backoff import Backoff, Retries
from gpuledger.runtime.clock import Sleep

REFRESH_S: Final = 30.0
"""How often the ledger is asked where nothing says that there is news."""

LOOK_AGAIN_S: Final = (0.02, 0.1, 0.5, 2.0)
"""The pauses between looks after a poke: what is published is recorded a little later, and in a batch with others."""

RETRY: Final = Backoff(first_s=0.5, max_s=30.0)

STUCK_AFTER_S: Final = 4 * REFRESH_S

STATE_KEY: Final = "orders"

log = structlog.get_logger("gpuledger.agent")

Connect = Callable[[], AbstractAsyncContextManager[LedgerQueries]]
"""Connects to the ledger; raises LedgerError where it cannot be asked."""


class ForeignListError(EventError):
    """The event is not by pools, or not for this node."""


class DesiredList(NamedTuple):
    """A list of what is wanted, where it stands in the ledger, and the event as it stands there."""

    position: Position
    devices: tuple[WantedDevice, ...]
    raw: bytes


class DesiredDevices:
    """Puts what is wanted of a node on the board; see `gpuledger.agent.part.Part`."""

    name = "orders"
    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        node: str,
        board: Board,
        keep: StateStore,
        connect: Connect,
        *,
        sleep: Sleep = asyncio.sleep,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self._node = node
        self._board = board
        self._keep = keep
        self._connect = connect
        self._sleep = sleep
        self._refresh_s = refresh_s
        self._subject = desired_devices_subject(node)
        self._order: DesiredList | None = None
        self._seen: Position | None = None
        self._retries = Retries(RETRY)
        self.alive_at: float | None = None
        self.refused = 0
        """How many lists were none of pools' for this node."""
        self.trouble: str | None = None
        """Why the ledger cannot be asked; None where it can, as far as is known."""

    async def run(self, record: Recorder) -> None:  # noqa: ARG002 - it has nothing to tell
        """Follow the ledger until cancelled; while it cannot be asked, what was wanted last is wanted."""
        self._recall()
        while True:
            try:
                async with self._connect() as ledger:
                    await self._follow(ledger)
            except LedgerError as error:
                self.trouble = str(error)
            self._be_alive()
            pause_s = self._retries.pause_s()
            log.warning("waiting for orders", reason=self.trouble, pause_s=pause_s)
            await self._sleep(pause_s)

    async def _follow(self, ledger: LedgerQueries) -> None:
        """Look whenever there may be news, and now and then."""
        poked = asyncio.Event()
        pauses: Iterator[float] = iter(())
        async with ledger.notified(self._subject, poked.set):
            while True:
                poked.clear()
                await self._look(ledger)
                with suppress(TimeoutError):
                    async with asyncio.timeout(next(pauses, self._refresh_s)):
                        await poked.wait()
                        pauses = iter(LOOK_AGAIN_S)

    async def _look(self, ledger: LedgerQueries) -> None:
        message = await ledger.newest(self._subject)
        self._be_alive()
        self.trouble = None
        self._retries.reset()
        if message is not None:
            await self._take(Position(ledger.generation, message.sequence), message)
        elif self._order is None:
            # Nobody has ever wanted anything of this node, or an archived generation knows of it.
            self._board.put(desired=())

    async def _take(self, position: Position, message: Message) -> None:
        if self._seen is not None and position <= self._seen:
            return
        self._seen = position
        try:
            order = read_list(self._node, position, message.data)
        except EventError as error:
            self.refused += 1
            log.error("a list of wanted devices is refused", position=str(position), reason=str(error))
            return
        log.info("wanted devices", position=str(position), devices=[wanted.device for wanted in order.devices])
        # Acting on it must not come before knowing it over a restart, which would go back to the list before.
        await self._keep.put(STATE_KEY, stored_text(order))
        self._accept(order)

    def _recall(self) -> None:
        kept = self._keep.get(STATE_KEY)
        if kept is None:
            return
        try:
            self._accept(read_stored(self._node, kept))
        except EventError as error:
            log.error("what was wanted before cannot be read; it comes from the ledger", reason=str(error))

    def _accept(self, order: DesiredList) -> None:
        self._order, self._seen = order, order.position
        self._board.put(desired=order.devices)

    def _be_alive(self) -> None:
        self.alive_at = asyncio.get_running_loop().time()


def read_list(node: str, position: Position, raw: bytes) -> DesiredList:
    """The list that stands at a position.

    Raises:
        EventError: it is no event, or none by which pools say what is wanted of this node.
    """
    event = decode(raw)
    if not isinstance(event.data, NodeDevicesWanted):
        raise ForeignListError(f"The event at {position} is {event.type}, not {NodeDevicesWanted.TYPE}.")
    if source_kind(event.source) not in NodeDevicesWanted.PUBLISH_RULE.publishers or event.subject != node:
        raise ForeignListError(
            f"The event at {position} is the list of {event.source} for {event.subject}, not that of pools for {node}."
        )
    return DesiredList(position, event.data.devices, raw)


def stored_text(order: DesiredList) -> bytes:
    """The list as it is kept on disk: its position in a line, and the event."""
    return f"{order.position}\n".encode() + order.raw


def read_stored(node: str, kept: bytes) -> DesiredList:
    """The list that `kept_text` gave.

    Raises:
        EventError: it is none, or another node's.
    """
    head, _, raw = kept.partition(b"\n")
    generation, _, sequence = head.partition(b"/")
    if not (generation.isdigit() and sequence.isdigit()):
        raise ForeignListError(f"What is kept begins with {head[:40]!r}, which is no position.")
    return read_list(node, Position(int(generation), int(sequence)), raw)
