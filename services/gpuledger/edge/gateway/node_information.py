"""`NodeInformation` as the gateway serves it: the instance type of a node, to who may report about that node.

A preflight check asks before it has anything to report, so that its pod may ask whether or not the ledger has yet that
one runs: the answer is one label of the pod's own node.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import grpc
import structlog

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.decide import Reporter, node_of
from gpuledger.edge.gateway.newest_facts import FactReader, NewestFacts
from gpuledger.edge.gateway.requests import only_request
from gpuledger.healthreports.errors import HealthReportError
from gpuledger.healthreports.node_information import Call, streamed
from gpuledger.healthreports.node_label import label_in
from gpuledger.healthreports.nodeinformation_pb2 import InstanceType, InstanceTypeRequest
from gpuledger.healthreports.protocol import REFUSALS
from gpuledger.healthreports.rates import ReporterRates
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.permissions import node_labels_subject

Identify = Callable[["grpc.aio.ServicerContext[Any, Any]"], Awaitable[Reporter]]
"""Who makes a call; raises HealthReportError where they may report nothing."""

log = structlog.get_logger("gpuledger.gateway")


def node_label(ledger: Ledger, label: str, bounds: GatewayBounds, monotonic: Callable[[], float]) -> NewestFacts[str]:
    """The value of a label by node, as watchers recorded it; empty where a node has no such label."""

    def read(node: str, raw: bytes) -> str:
        return label_in(raw, node, label)

    return NewestFacts(ledger, FactReader("gateway.label-unknown", node_labels_subject, read, ""), bounds, monotonic)


class NodeInformationService:
    """Serves all callers alike, whoever says who they are; `rates` are those of reports."""

    def __init__(
        self,
        labels: NewestFacts[str],
        rates: ReporterRates,
        bounds: GatewayBounds,
        monotonic: Callable[[], float],
    ) -> None:
        self._labels = labels
        self._rates = rates
        self._bounds = bounds
        self._monotonic = monotonic
        self._reason = ""
        """Why a call was refused last; it is logged once."""

    def handlers(self, identify: Identify) -> Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]:
        """The methods of the service, by name."""
        return streamed(partial(self._instance_type, identify))

    async def _instance_type(
        self, identify: Identify, requests: AsyncIterator[InstanceTypeRequest], context: Call
    ) -> InstanceType:
        try:
            reporter = await identify(context)
            request = await only_request(requests, self._bounds.request_timeout_s)
            self._rates.take(reporter.name, 1, self._monotonic())
            node = node_of(request.node_name, "request", reporter)
        except HealthReportError as error:
            _, status = REFUSALS[type(error)]
            if str(error) != self._reason:
                log.warning("gateway.question-refused", status=status.name, peer=context.peer(), reason=str(error))
            self._reason = str(error)
            await context.abort(status, str(error))
        return InstanceType(name=await self._labels.of(node))
