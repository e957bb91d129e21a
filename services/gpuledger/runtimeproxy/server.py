"""The proxy as a server: listens for the kubelet, connects to the runtime, and ends without breaking off calls."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio

from gpuledger.runtimeproxy.errors import SocketError
from gpuledger.runtimeproxy.forwarding import CHANNEL_OPTIONS, SERVER_OPTIONS, Change, Forwarder
from gpuledger.runtimeproxy.listening import exclusive, private
from gpuledger.runtimeproxy.traffic import Traffic


def runtime_channel(runtime: Path) -> grpc.aio.Channel:
    """A connection to the runtime, which is made when needed, and again after the runtime's restart."""
    return grpc.aio.insecure_channel(f"unix:{runtime}", options=CHANNEL_OPTIONS)


@asynccontextmanager
async def proxying(
    listen: Path, channel: grpc.aio.Channel, changes: Mapping[str, Change], traffic: Traffic, *, drain_max_s: float
) -> AsyncIterator[None]:
    """Serves for the length of the block; at its end, calls under way have `drain_max_s` to end by themselves.

    Raises:
        SocketInUseError: another process serves on the socket.
        SocketError: the socket cannot be made.
    """
    with exclusive(listen):
        server = grpc.aio.server(options=SERVER_OPTIONS)
        forwarder = Forwarder(channel, changes, traffic)
        server.add_generic_rpc_handlers((forwarder,))
        try:
            with private():
                server.add_insecure_port(f"unix:{listen}")
        except RuntimeError as error:
            raise SocketError(f"Cannot listen on {listen}: {error}. Is the path longer than 107 bytes?") from error
        try:
            await server.start()
            yield
        finally:
            forwarder.end_endless()
            await server.stop(drain_max_s)
            await forwarder.reported()
