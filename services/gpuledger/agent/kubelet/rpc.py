"""Calls of the kubelet by gRPC over its unix sockets.

The messages are generated (`make protos`), and the few methods are named here. gRPC's own errors go no further than
this module.
"""

from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from gpuledger.agent.errors import KubeletAwayError, KubeletError, KubeletRefusedError
from gpuledger.agent.grpc_serving import serialized

REGISTER: Final = "/v1beta1.Registration/Register"
DEVICE_PLUGIN: Final = "v1beta1.DevicePlugin"
LIST_POD_RESOURCES: Final = "/v1.PodResourcesLister/List"

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Room for the list of a full node, which does not fit into gRPC's default of 4 MiB."""

_CHANNEL: Final = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # A channel of its own connects at once, where a shared one would wait because an earlier one could not.
    ("grpc.use_local_subchannel_pool", 1),
)

_AWAY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})

ResponseT = TypeVar("ResponseT", bound=Message)


async def call(
    socket: Path, method: str, request: Message, response: type[ResponseT], *, timeout_s: float
) -> ResponseT:
    """Call a method of the kubelet once.

    Raises:
        KubeletAwayError: nothing responds on the socket, or not in time.
        KubeletRefusedError: the kubelet responds with an error, or with an unexpected message.
    """
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=_CHANNEL) as channel:
        send = channel.unary_unary(method, request_serializer=serialized, response_deserializer=response.FromString)
        try:
            return await send(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _translated(socket, method, error) from error


def _translated(socket: Path, method: str, error: grpc.aio.AioRpcError) -> KubeletError:
    reason = f"{error.code().name}, {error.details() or 'without details'}"
    if error.code() in _AWAY:
        return KubeletAwayError(f"No kubelet answers {method} on {socket} ({reason}); the agent retries.")
    return KubeletRefusedError(f"The kubelet on {socket} refused {method} ({reason}); see its own log.")
