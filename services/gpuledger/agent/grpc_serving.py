"""Serves gRPC on sockets of this machine, with messages that are generated (`make protos`)."""

from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message


def serialized(message: Message) -> bytes:
    """The wire format of a message."""
    return message.SerializeToString()


Handlers = Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]
"""The methods of a service, by name."""


async def serve(address: str, services: Mapping[str, Handlers]) -> grpc.aio.Server:
    """Start to serve on an address such as `unix:<path>` or `unix-abstract:<name>`; the caller stops the server.

    `services` has the methods of each service by its name.

    Raises:
        OSError: the address cannot be listened on.
    """
    server = grpc.aio.server()
    generic = (grpc.method_handlers_generic_handler(name, dict(handlers)) for name, handlers in services.items())
    server.add_generic_rpc_handlers(tuple(generic))
    try:
        server.add_insecure_port(address)
        await server.start()
    except BaseException as error:
        await server.stop(None)
        if isinstance(error, RuntimeError):
            raise OSError(f"cannot listen on {address}") from error
        raise
    return server
