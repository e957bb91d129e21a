"""Follows what the replicas of the gateway record, so that each recognizes what is sent again to another one."""

from datetime import timedelta

import structlog

from gpuledger.domain.fact import time_of_ns
from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.check_reports import note_result
from gpuledger.edge.gateway.checked_pods import CheckedPods
from gpuledger.edge.gateway.publisher import SOURCE
from gpuledger.edge.gateway.recorder import GatewayRecorder
from gpuledger.events.envelope import parse, with_payload
from gpuledger.events.errors import EventError
from gpuledger.events.position import ORIGIN
from gpuledger.events.subjects import source_filter
from gpuledger.ledger.api import Ledger, Message
from gpuledger.projection.replay import sequence_at
from gpuledger.runtime.clock import Clock

log = structlog.get_logger("gpuledger.gateway")


class Recall:
    """Reads the gateway's own events of the last minutes, and then those that come."""

    def __init__(
        self, ledger: Ledger, recorder: GatewayRecorder, pods: CheckedPods, bounds: GatewayBounds, clock: Clock
    ) -> None:
        self._ledger = ledger
        self._recorder = recorder
        self._pods = pods
        self._bounds = bounds
        self._clock = clock
        self._read_to = ORIGIN

    async def catch_up(self) -> None:
        """Read what was recorded lately, before the first report is taken.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        self._read_to = await sequence_at(self._ledger, self._clock() - timedelta(seconds=self._bounds.recall_s))
        async for messages in self._ledger.history(self._read_to, subject_filter=source_filter(SOURCE)):
            self._take(messages)

    async def run(self) -> None:
        """Follow from where `catch_up` has ended, until cancelled.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        async with self._ledger.read(self._read_to, source_filter(SOURCE)) as reader:
            while True:
                self._take(await reader.next_batch(self._bounds.messages_per_batch, self._bounds.tick_s))

    def _take(self, messages: list[Message]) -> None:
        since = self._clock() - timedelta(seconds=self._bounds.recall_s)
        for message in messages:
            self._read_to = message.sequence
            if time_of_ns(message.recorded_ns) < since:
                continue
            try:
                event = with_payload(parse(message.data))
                self._recorder.recall(event)
                note_result(self._pods, event.data)
            except EventError as error:
                log.warning("gateway.not-recalled", subject=message.subject, reason=str(error))
