"""A container runtime that answers any method of any service with what a test scripts, and the parts around it.

It works on bytes, so that a test sees whether the proxy before it changes any.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from gpuledger.runtimeproxy.forwarding import CHANNEL_OPTIONS, SERVER_OPTIONS, Change
from gpuledger.runtimeproxy.server import proxying, runtime_channel
from gpuledger.runtimeproxy.traffic import Traffic

CREATE: Final = "/runtime.v1.RuntimeService/CreateContainer"
EVENTS: Final = "/runtime.v1.RuntimeService/GetContainerEvents"
VERSION: Final = "/runtime.v1.RuntimeService/Version"
TEST_TIMEOUT_S: Final = 60.0


@dataclass
class RuntimeAnswer:
    """How the runtime answers a call: messages after those of the kubelet, then its status."""

    messages: Sequence[bytes] = (b"",)
    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    initial: Sequence[tuple[str, str | bytes]] = ()
    trailing: Sequence[tuple[str, str | bytes]] = ()
    hold: asyncio.Event | None = None
    """Waited for after the messages."""


@dataclass
class SeenCall:
    """A call as the runtime saw it."""

    method: str
    metadata: tuple[tuple[str, str | bytes], ...]
    time_remaining_s: float | None
    messages: list[bytes] = field(default_factory=list)
    cancelled: bool = False


class ContainerRuntime(grpc.GenericRpcHandler):
    """Serves on a socket; `answer` says how it answers a method."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: list[SeenCall] = []
        self.answers: dict[str, RuntimeAnswer | Callable[[bytes], bytes]] = {}
        self.default = RuntimeAnswer()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(f"unix:{self.path}")
        await self._server.start()

    async def stop(self) -> None:
        """Break off everything, as a runtime that is killed."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Any method."""
        method = handler_call_details.method

        async def serve(_requests: object, context: Any) -> None:
            await self._serve(method, context)

        return grpc.stream_stream_rpc_method_handler(serve)

    async def _serve(self, method: str, context: Any) -> None:
        metadata = tuple((key, value) for key, value in context.invocation_metadata() if key != "user-agent")
        seen = SeenCall(method, metadata, context.time_remaining())
        self.calls.append(seen)
        try:
            answer = self.answers.get(method, self.default)
            if not isinstance(answer, RuntimeAnswer):
                seen.messages.append(await context.read())
                await context.write(answer(seen.messages[0]))
                return
            if answer.initial:
                await context.send_initial_metadata(tuple(answer.initial))
            while isinstance(message := await context.read(), bytes):
                seen.messages.append(message)
            for message in answer.messages:
                await context.write(message)
            if answer.hold is not None:
                await answer.hold.wait()
            context.set_trailing_metadata(tuple(answer.trailing))
            context.set_code(answer.code)
            context.set_details(answer.details)
        except asyncio.CancelledError:
            seen.cancelled = True
            raise


@asynccontextmanager
async def running_runtime(folder: Path) -> AsyncIterator[ContainerRuntime]:
    """A runtime on `runtime.sock` of the folder."""
    runtime = ContainerRuntime(folder / "runtime.sock")
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()


@asynccontextmanager
async def kubelet_of(path: Path) -> AsyncIterator[Any]:
    """A connection as the kubelet makes it."""
    async with grpc.aio.insecure_channel(f"unix:{path}", options=CHANNEL_OPTIONS) as channel:
        yield channel


@asynccontextmanager
async def proxied(
    folder: Path,
    changes: Mapping[str, Change] | None = None,
    *,
    drain_max_s: float = 0.0,
    traffic: Traffic | None = None,
) -> AsyncIterator[Any]:
    """The kubelet's connection to a proxy before the runtime of `running_runtime`."""
    listen = folder / "proxy.sock"
    counts = Traffic() if traffic is None else traffic
    async with (
        runtime_channel(folder / "runtime.sock") as channel,
        proxying(listen, channel, changes or {}, counts, drain_max_s=drain_max_s),
        kubelet_of(listen) as kubelet,
    ):
        yield kubelet


async def unary(channel: grpc.aio.Channel, method: str, message: bytes = b"", **options: Any) -> bytes:
    """A unary call of bytes."""
    call: Any = channel.unary_unary(method)
    return bytes(await call(message, **{"timeout": TEST_TIMEOUT_S, **options}))
