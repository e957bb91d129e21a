"""Forwards gRPC calls as they are, so that the kubelet sees its runtime through the proxy, whatever either one speaks.

Every call is taken as a stream in both directions: a unary call is the same on the wire, so a method need not be
listed here to pass. Messages stay the bytes that they are; metadata, deadlines, cancellation, status and its details
pass as well. Only the `user-agent` and the compression of the connection are the proxy's own. Calls of methods in
`changes` have their first message changed, or are refused, before the runtime sees them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import grpc
import grpc.aio
import structlog

from gpuledger.runtime.tasks import end
from gpuledger.runtimeproxy.errors import CallRefusedError
from gpuledger.runtimeproxy.traffic import Traffic

MESSAGE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Far above what kubelets (16 MiB) and runtimes take, so that they refuse what is too large, and not the proxy."""

METADATA_BYTES_MAX: Final = 16 * 1024 * 1024
"""What Go's gRPC takes, which kubelets and runtimes use; this library begins to refuse at 8 KiB by itself."""

RECONNECT_MAX_MS: Final = 1_000
"""How long after its restart the runtime may stay out of reach."""

_LIMITS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
)

SERVER_OPTIONS: Final = (*_LIMITS, ("grpc.http2.max_ping_strikes", 0), ("grpc.so_reuseport", 0))
"""A kubelet may ping as often as it likes; the runtime behind would have to bear it, too."""

CHANNEL_OPTIONS: Final = (
    *_LIMITS,
    ("grpc.default_authority", "localhost"),  # Go's servers refuse the path of a socket, this library's default.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),  # The kubelet repeats what it wants repeated.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MAX_MS),
)

ENDLESS: Final = frozenset({"/runtime.v1.RuntimeService/GetContainerEvents"})
"""Calls that last as long as the connection; the kubelet calls anew when they break off."""

_OWN_METADATA: Final = frozenset({"user-agent"})

Context = grpc.aio.ServicerContext[bytes, bytes]
Call = grpc.aio.StreamStreamCall[bytes, bytes]

log = structlog.get_logger("gpuledger.runtimeproxy")


class ChangedMessage(NamedTuple):
    """What the runtime gets in place of a message; `on_success` is called once it has answered the call with OK."""

    message: bytes
    on_success: Callable[[], Awaitable[None]] | None = None


Change = Callable[[bytes], Awaitable[ChangedMessage]]
"""Changes the first message of a call, or raises CallRefusedError."""


class Forwarder(grpc.GenericRpcHandler):
    """Serves every method by calling it on the channel; `changes` by `/<service>/<method>`."""

    def __init__(self, channel: grpc.aio.Channel, changes: Mapping[str, Change], traffic: Traffic) -> None:
        self._channel = channel
        self._changes = changes
        self._traffic = traffic
        self._ending = asyncio.Event()
        self._reports: set[asyncio.Task[None]] = set()

    async def reported(self) -> None:
        """Return when the success of every call that has ended is reported."""
        while self._reports:
            await asyncio.wait(self._reports)

    def end_endless(self) -> None:
        """End the calls that would never end by themselves, also those to come."""
        self._ending.set()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """The handler of any method."""
        method = handler_call_details.method

        async def serve(_requests: object, context: Context) -> None:
            with self._traffic.call(method):
                await self._serve(method, context)

        return grpc.stream_stream_rpc_method_handler(serve)

    async def _serve(self, method: str, context: Context) -> None:
        if method in ENDLESS:
            await self._forward_until_ending(method, context)
            return
        change = self._changes.get(method)
        if change is None:
            await self._forward(method, context, None)
            return
        message = await context.read()
        if not isinstance(message, bytes):  # the kubelet has closed the call without a message
            await self._forward(method, context, None)
            return
        try:
            changed = await change(message)
        except CallRefusedError as error:
            self._traffic.refused += 1
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        await self._forward(method, context, changed)

    async def _forward_until_ending(self, method: str, context: Context) -> None:
        forwarding = asyncio.create_task(self._forward(method, context, None))
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait({forwarding, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            finished = forwarding.done()
            await end([forwarding, ending])
        if not finished:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "The proxy before the container runtime ends; call again.")
        forwarding.result()

    async def _forward(self, method: str, context: Context, first: ChangedMessage | None) -> None:
        call: Call = self._channel.stream_stream(method)(
            timeout=context.time_remaining(), metadata=_passed(context.invocation_metadata())
        )
        sending = asyncio.create_task(_send(context, call, first))
        try:
            await _receive(context, call)
            await _finish(context, call)
        finally:
            call.cancel()
            await end([sending])
        if first is not None and first.on_success is not None and await call.code() is grpc.StatusCode.OK:
            self._report(first.on_success)

    def _report(self, on_success: Callable[[], Awaitable[None]]) -> None:
        """Report a success beside the answer, which neither waits for it nor fails with it."""

        async def report() -> None:
            try:
                await on_success()
            except Exception as error:  # noqa: BLE001 - the container is there, whatever becomes of the report
                log.error("a success is not reported", error=repr(error))

        task = asyncio.create_task(report())
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)


async def _send(context: Context, call: Call, first: ChangedMessage | None) -> None:
    """Pass on what the kubelet sends, until it has sent all or the runtime has ended the call."""
    try:
        if first is not None:
            await call.write(first.message)
        while isinstance(message := await context.read(), bytes):
            await call.write(message)
        await call.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        log.debug("the runtime ended a call before it had all messages")  # `_finish` passes its status on


async def _receive(context: Context, call: Call) -> None:
    """Pass on what the runtime sends, until it ends the call."""
    try:
        metadata = _passed(await call.initial_metadata())
        if metadata or not call.done():
            await context.send_initial_metadata(metadata)
        while isinstance(message := await call.read(), bytes):
            await context.write(message)
    except grpc.aio.AioRpcError:
        return  # `_finish` passes its status on


async def _finish(context: Context, call: Call) -> None:
    """End the kubelet's call as the runtime has ended it."""
    context.set_trailing_metadata(_passed(await call.trailing_metadata()))
    context.set_code(await call.code())
    context.set_details(await call.details() or "")


def _passed(metadata: object) -> tuple[tuple[str, str | bytes], ...]:
    """Metadata for the other side, in its order."""
    return tuple((key, value) for key, value in metadata or () if key not in _OWN_METADATA)  # type: ignore[attr-defined]
