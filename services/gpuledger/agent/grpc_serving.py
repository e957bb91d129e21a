"""Serves gRPC on sockets of this machine, with messages that are generated (`make protos`)."""

from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message


def serialized(message: Message) -> bytes:
    """The wire format of a message."""
    return message.SerializeToString()


async def serve(
    address: str, service: str, handlers: Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]
) -> grpc.aio.Server:
    """Start to serve on an address such as `unix:<path>` or `unix-abstract:<name>`; the caller stops the server.

    Raises:
        OSError: the address cannot be listened on.
    """
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, dict(handlers)),))
    try:
        server.add_insecure_port(address)
        await server.start()
    except BaseException as error:
        await server.stop(None)
        if isinstance(error, RuntimeError):
            raise OSError(f"cannot listen on {address}") from error
        raise
    return server
