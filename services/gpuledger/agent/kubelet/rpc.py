"""How the agent and the kubelet call each other: over unix sockets, by the methods of the kubelet's two APIs.

The messages are generated (`make protos`); the few services are written down here. What grpc raises is translated
here, and goes no further.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from gpuledger.agent.errors import KubeletAwayError, KubeletError, KubeletRefusedError

REGISTER: Final = "/v1beta1.Registration/Register"
DEVICE_PLUGIN: Final = "v1beta1.DevicePlugin"
LIST_POD_RESOURCES: Final = "/v1.PodResourcesLister/List"

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""What a kubelet sends of a full node; grpc's own bound of 4 MiB is too narrow."""

_CHANNEL: Final = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # A channel of its own connects at once, where a shared one would wait because an earlier one could not.
    ("grpc.use_local_subchannel_pool", 1),
)

_AWAY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})

AnswerT = TypeVar("AnswerT", bound=Message)


async def call(socket: Path, method: str, request: Message, answer: type[AnswerT], *, timeout_s: float) -> AnswerT:
    """Ask the kubelet once.

    Raises:
        KubeletAwayError: nobody answers there, or not in time.
        KubeletRefusedError: it answers with an error, or with something else than it should.
    """
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=_CHANNEL) as channel:
        ask = channel.unary_unary(method, request_serializer=serialized, response_deserializer=answer.FromString)
        try:
            return await ask(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _translated(socket, method, error) from error


def _translated(socket: Path, method: str, error: grpc.aio.AioRpcError) -> KubeletError:
    said = f"{error.code().name}, {error.details() or 'and no word more'}"
    if error.code() in _AWAY:
        return KubeletAwayError(f"No kubelet answers {method} on {socket} ({said}); it is asked again.")
    return KubeletRefusedError(f"The kubelet on {socket} refused {method} ({said}); its own log says more.")


def serialized(message: Message) -> bytes:
    """A message as it goes over the wire."""
    return message.SerializeToString()


async def serve(
    socket: Path, service: str, handlers: Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]
) -> grpc.aio.Server:
    """Start to serve on a socket; who calls this stops the server.

    Raises:
        OSError: nobody can listen there.
    """
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, dict(handlers)),))
    try:
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
    except BaseException as error:
        await server.stop(None)
        if isinstance(error, RuntimeError):
            raise OSError(f"nobody can listen on {socket}") from error
        raise
    return server
