"""`NodeInformation` as the agent serves it: the instance type of its node, to who may report on it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
import structlog

from gpuledger.agent.gateway.decide import node_denial
from gpuledger.agent.gateway.reporters import Reporters
from gpuledger.healthreports.errors import HealthReportError, ReportDeniedError
from gpuledger.healthreports.node_information import Call, handlers
from gpuledger.healthreports.nodeinformation_pb2 import InstanceType, InstanceTypeRequest
from gpuledger.healthreports.protocol import REFUSALS

log = structlog.get_logger("gpuledger.agent")


class NodeInformationService:
    """Serves peers of the socket; `reporters` has who may ask, and `label` reads the value."""

    def __init__(self, node: str, reporters: Reporters, label: Callable[[], Awaitable[str]]) -> None:
        self._node = node
        self._reporters = reporters
        self._label = label
        self._reason = ""
        """Why a question was refused last; it is logged once."""

    def handlers(self) -> Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]:
        """The methods of the service, by name."""
        return handlers(self._instance_type)

    async def _instance_type(self, request: InstanceTypeRequest, context: Call) -> InstanceType:
        try:
            await self._reporters.reader(context.peer())
            if (reason := node_denial(request.node_name, self._node)) is not None:
                raise ReportDeniedError(reason)
        except HealthReportError as error:
            _, status = REFUSALS[type(error)]
            if str(error) != self._reason:
                log.warning("a question about the node is refused", status=status.name, reason=str(error))
            self._reason = str(error)
            await context.abort(status, str(error))
        return InstanceType(name=await self._label())
