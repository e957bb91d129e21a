"""What the newest fact about each node says, kept for a while and for a bounded number of nodes.

A node without such a fact has the value of none here, and while the ledger cannot be asked the last answer stands.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import structlog

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.events.errors import EventError
from gpuledger.events.position import is_origin
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LedgerError

T = TypeVar("T")

log = structlog.get_logger("gpuledger.gateway")


class FactReader(NamedTuple, Generic[T]):
    """Where the facts about a node are in the ledger, what one says, and what counts where there is none.

    `read` takes the node and the event as it was recorded, and raises EventError where it cannot be decoded. The log
    has `unknown` where the ledger does not answer.
    """

    unknown: str
    subject: Callable[[str], str]
    read: Callable[[str, bytes], T]
    absent: T


class _Kept(NamedTuple, Generic[T]):
    value: T
    until_s: float


class NewestFacts(Generic[T]):
    """The values by node; `monotonic` counts in seconds."""

    def __init__(
        self, ledger: Ledger, reader: FactReader[T], bounds: GatewayBounds, monotonic: Callable[[], float]
    ) -> None:
        self._ledger = ledger
        self._reader = reader
        self._bounds = bounds
        self._monotonic = monotonic
        self._kept: OrderedDict[str, _Kept[T]] = OrderedDict()

    async def of(self, node: str) -> T:
        """What counts for a node: the value of no fact where there is none, or the ledger does not answer in time."""
        now_s = self._monotonic()
        kept = self._kept.get(node)
        if kept is not None and kept.until_s > now_s:
            return kept.value
        try:
            async with asyncio.timeout(self._bounds.facts_timeout_s):
                value = await self._read(node)
        except (LedgerError, EventError, TimeoutError) as error:
            reason = str(error) or "the ledger does not answer in time"
            log.warning(self._reader.unknown, node=node, reason=reason)
            value = self._reader.absent if kept is None else kept.value
        self._kept.pop(node, None)
        self._kept[node] = _Kept(value, now_s + self._bounds.facts_life_s)
        if len(self._kept) > self._bounds.nodes_max:
            self._kept.popitem(last=False)
        return value

    async def _read(self, node: str) -> T:
        last = await self._ledger.last_sequence(self._reader.subject(node))
        message = None if is_origin(last) else await self._ledger.message_at(last)
        return self._reader.absent if message is None else self._reader.read(node, message.data)
