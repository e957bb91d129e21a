"""NVSentinel's `PlatformConnector` as the agent serves it: an answer means that the ledger will have the reports.

A request that is refused has no effect; its status and message say why, and what to do.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import grpc.aio
import structlog
from google.protobuf.empty_pb2 import Empty

from gpuledger.agent.gateway.decide import reporter_of
from gpuledger.agent.gateway.recording import ReportRecorder
from gpuledger.agent.gateway.reporters import Reporters
from gpuledger.agent.hardware.api import CardFacts
from gpuledger.healthreports.check_metrics import CheckResults
from gpuledger.healthreports.coalescing import ReportResult
from gpuledger.healthreports.errors import HealthReportError
from gpuledger.healthreports.healthevents_pb2 import HealthEvents
from gpuledger.healthreports.protocol import OVER_TCP, REFUSALS, handlers, results
from gpuledger.healthreports.translate import ReportContext, translate
from gpuledger.runtime.clock import Clock

RESULTS: Final = results({kind: refusal for kind, refusal in REFUSALS.items() if kind not in OVER_TCP})
"""What may become of a report, each counted zero times."""

log = structlog.get_logger("gpuledger.agent")


@dataclass(slots=True)
class ReportCounts:
    """What became of the reports since the agent started."""

    by_result: Counter[str] = field(default_factory=lambda: Counter(RESULTS))


class ReportService:
    """Serves health monitors; `reporters` has who may report what, and `cards` the node's cards at present."""

    def __init__(
        self,
        node: str,
        recorder: ReportRecorder,
        reporters: Reporters,
        counts: ReportCounts,
        *,
        cards: Callable[[], tuple[CardFacts, ...]],
        clock: Clock,
    ) -> None:
        self._node = node
        self._recorder = recorder
        self._reporters = reporters
        self._check_results = CheckResults()
        self._counts = counts
        self._cards = cards
        self._clock = clock
        self._reason = ""
        """Why a report was refused last; it is logged once."""

    def handlers(self) -> Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]:
        """The methods of the service, by name."""
        return handlers(self._occurred)

    async def _occurred(self, request: HealthEvents, context: grpc.aio.ServicerContext[HealthEvents, Empty]) -> Empty:
        try:
            results = await self._take(request, context.peer())
        except HealthReportError as error:
            name, status = REFUSALS[type(error)]
            self._counts.by_result[name] += max(1, len(request.events))
            if str(error) != self._reason:
                log.warning("a health report is refused", status=status.name, reason=str(error))
            self._reason = str(error)
            await context.abort(status, str(error))
        self._counts.by_result.update(result.value for result in results)
        return Empty()

    async def _take(self, request: HealthEvents, address: str) -> list[ReportResult]:
        peer = await self._reporters.checked(address, request)
        reporting = ReportContext(self._node, self._cards(), reporter_of(peer))
        reports = translate(request, reporting, self._clock())
        results = await self._recorder.take(reports)
        self._check_results.count(self._node, zip((one.data for one in reports), results, strict=True))
        return results
