"""The service `NodeInformation`, which both gateways serve beside the reports, and its client.

A gateway answers what an init container cannot find out about its node. It must never take from a request which label
to read, so that nobody learns more of a node than its instance type.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
import grpc.aio

from gpuledger.healthreports.nodeinformation_pb2 import InstanceType, InstanceTypeRequest

SERVICE: Final = "gpuledger.node.v1.NodeInformation"
METHOD: Final = "GetInstanceType"

Call = grpc.aio.ServicerContext[InstanceTypeRequest, InstanceType]

Answer = Callable[[InstanceTypeRequest, "Call"], Awaitable[InstanceType]]

StreamedAnswer = Callable[[AsyncIterator[InstanceTypeRequest], "Call"], Awaitable[InstanceType]]


def handlers(answer: Answer) -> Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]:
    """The methods of the service, by name."""
    return {METHOD: grpc.unary_unary_rpc_method_handler(answer, InstanceTypeRequest.FromString, _serialized)}


def streamed(answer: StreamedAnswer) -> Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]:
    """The same methods, where a call begins before its request is there: clients see no difference."""
    return {METHOD: grpc.stream_unary_rpc_method_handler(answer, InstanceTypeRequest.FromString, _serialized)}


async def instance_type(channel: grpc.aio.Channel, timeout_s: float, node: str = "") -> str:
    """What a gateway has of a node's instance type, the caller's own unless it names one; empty where it has none.

    Raises:
        grpc.aio.AioRpcError: the gateway does not answer in time, or refuses to.
    """
    ask: grpc.aio.UnaryUnaryMultiCallable[InstanceTypeRequest, InstanceType] = channel.unary_unary(
        f"/{SERVICE}/{METHOD}",
        request_serializer=InstanceTypeRequest.SerializeToString,
        response_deserializer=InstanceType.FromString,
    )
    return (await ask(InstanceTypeRequest(node_name=node), timeout=timeout_s)).name


def _serialized(message: InstanceType) -> bytes:
    return message.SerializeToString()
