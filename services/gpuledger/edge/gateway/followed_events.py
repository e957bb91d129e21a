"""Follows events of one subject filter from some time ago on, for what the gateway remembers of them."""

from collections.abc import Callable
from datetime import timedelta

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.events.position import ORIGIN
from gpuledger.ledger.api import Ledger, Message
from gpuledger.projection.replay import sequence_at
from gpuledger.runtime.clock import Clock


class FollowedEvents:
    """Reads what was recorded within the last `since`, and then what comes; `take` gets each message once, in order."""

    def __init__(
        self,
        ledger: Ledger,
        subject_filter: str,
        since: timedelta,
        take: Callable[[Message], None],
        bounds: GatewayBounds,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._filter = subject_filter
        self._since = since
        self._take = take
        self._bounds = bounds
        self._clock = clock
        self._read_to = ORIGIN

    async def catch_up(self) -> None:
        """Read what was recorded lately, before the first report is taken.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        self._read_to = await sequence_at(self._ledger, self._clock() - self._since)
        async for messages in self._ledger.history(self._read_to, subject_filter=self._filter):
            self._take_all(messages)

    async def run(self) -> None:
        """Follow from where `catch_up` has ended, until cancelled.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        async with self._ledger.read(self._read_to, self._filter) as reader:
            while True:
                self._take_all(await reader.next_batch(self._bounds.messages_per_batch, self._bounds.tick_s))

    def _take_all(self, messages: list[Message]) -> None:
        for message in messages:
            self._read_to = message.sequence
            self._take(message)
