"""Follows what the replicas of the gateway record, so that each recognizes what is sent again to another one."""

from datetime import timedelta

import structlog

from gpuledger.domain.fact import time_of_ns
from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.check_reports import note_result
from gpuledger.edge.gateway.checked_pods import CheckedPods
from gpuledger.edge.gateway.followed_events import FollowedEvents
from gpuledger.edge.gateway.publisher import SOURCE
from gpuledger.edge.gateway.recorder import GatewayRecorder
from gpuledger.events.envelope import parse, with_payload
from gpuledger.events.errors import EventError
from gpuledger.events.subjects import source_filter
from gpuledger.ledger.api import Ledger, Message
from gpuledger.runtime.clock import Clock

log = structlog.get_logger("gpuledger.gateway")


class Recall(FollowedEvents):
    """Reads the gateway's own events of the last minutes, and then those that come."""

    def __init__(
        self, ledger: Ledger, recorder: GatewayRecorder, pods: CheckedPods, bounds: GatewayBounds, clock: Clock
    ) -> None:
        since = timedelta(seconds=bounds.recall_s)
        super().__init__(ledger, source_filter(SOURCE), since, self._recall, bounds, clock)
        self._recorder = recorder
        self._pods = pods

    def _recall(self, message: Message) -> None:
        if time_of_ns(message.recorded_ns) < self._clock() - self._since:
            return
        try:
            event = with_payload(parse(message.data))
            self._recorder.recall(event)
            note_result(self._pods, event.data, event.time)
        except EventError as error:
            log.warning("gateway.not-recalled", subject=message.subject, reason=str(error))
