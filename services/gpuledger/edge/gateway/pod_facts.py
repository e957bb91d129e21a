"""Follows what watchers record of pods with preflight checks, for who may report. It must never follow anybody else."""

from datetime import timedelta
from typing import Final

import structlog

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.checked_pods import RUNNING_MAX, CheckedPods
from gpuledger.edge.gateway.followed_events import FollowedEvents
from gpuledger.events.envelope import parse, stands_under, with_payload
from gpuledger.events.errors import EventError
from gpuledger.events.preflight import PodPreflightGone, PodPreflightObserved
from gpuledger.events.publishing import SourceKind
from gpuledger.events.subjects import ROOT, SERVICE
from gpuledger.ledger.api import Ledger, Message
from gpuledger.runtime.clock import Clock

SUBJECTS: Final = f"{ROOT}.{SERVICE}.{SourceKind.WATCHERS}.{PodPreflightObserved.AGGREGATE}.>"

SINCE: Final = RUNNING_MAX + timedelta(hours=1)
"""What is read at the start: a pod may have been observed before its check began to run."""

log = structlog.get_logger("gpuledger.gateway")


class PodFacts(FollowedEvents):
    """Reads the facts about pods that may still matter, and then those that come."""

    def __init__(self, ledger: Ledger, pods: CheckedPods, bounds: GatewayBounds, clock: Clock) -> None:
        super().__init__(ledger, SUBJECTS, SINCE, self._observe, bounds, clock)
        self._pods = pods

    def _observe(self, message: Message) -> None:
        try:
            event = with_payload(parse(message.data))
        except EventError as error:
            log.warning("gateway.pod-unread", subject=message.subject, reason=str(error))
            return
        data = event.data
        if isinstance(data, PodPreflightObserved | PodPreflightGone) and stands_under(event, message.subject):
            self._pods.observe(event.subject, data)
