"""Follows what watchers record of pods with preflight checks, for who may report. It must never follow anybody else."""

from datetime import timedelta
from typing import Final

import structlog

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.checked_pods import RUNNING_MAX, CheckedPods
from gpuledger.events.envelope import parse, stands_under, with_payload
from gpuledger.events.errors import EventError
from gpuledger.events.position import ORIGIN
from gpuledger.events.preflight import PodPreflightGone, PodPreflightObserved
from gpuledger.events.publishing import SourceKind
from gpuledger.events.subjects import ROOT, SERVICE
from gpuledger.ledger.api import Ledger, Message
from gpuledger.projection.replay import sequence_at
from gpuledger.runtime.clock import Clock

SUBJECTS: Final = f"{ROOT}.{SERVICE}.{SourceKind.WATCHERS}.{PodPreflightObserved.AGGREGATE}.>"

SINCE: Final = RUNNING_MAX + timedelta(hours=1)
"""What is read at the start: a pod may have been observed before its check began to run."""

log = structlog.get_logger("gpuledger.gateway")


class PodFacts:
    """Reads the facts about pods that may still matter, and then those that come."""

    def __init__(self, ledger: Ledger, pods: CheckedPods, bounds: GatewayBounds, clock: Clock) -> None:
        self._ledger = ledger
        self._pods = pods
        self._bounds = bounds
        self._clock = clock
        self._read_to = ORIGIN

    async def catch_up(self) -> None:
        """Read what was recorded lately, before the first report is taken.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        self._read_to = await sequence_at(self._ledger, self._clock() - SINCE)
        async for messages in self._ledger.history(self._read_to, subject_filter=SUBJECTS):
            self._take(messages)

    async def run(self) -> None:
        """Follow from where `catch_up` has ended, until cancelled.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        async with self._ledger.read(self._read_to, SUBJECTS) as reader:
            while True:
                self._take(await reader.next_batch(self._bounds.messages_per_batch, self._bounds.tick_s))

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            self._read_to = message.sequence
            try:
                event = with_payload(parse(message.data))
            except EventError as error:
                log.warning("gateway.pod-unread", subject=message.subject, reason=str(error))
                continue
            data = event.data
            if isinstance(data, PodPreflightObserved | PodPreflightGone) and stands_under(event, message.subject):
                self._pods.observe(event.subject, data)
