"""One extended resource of the device plugin: its socket, and its registration with the kubelet while there are units.

A loop compares what is in the kubelet's folder with what should be there, and restores what is missing: it makes a lost
socket anew, and registers with a kubelet that has restarted. So the order in which a kubelet wipes its folder, stops
and starts does not matter.
"""

import asyncio
from pathlib import Path
from typing import Final

import grpc.aio
import structlog

from gpuledger.agent.errors import KubeletError, SocketError
from gpuledger.agent.grpc_serving import serve
from gpuledger.agent.kubelet.deviceplugin_pb2 import Empty, RegisterRequest
from gpuledger.agent.kubelet.rpc import DEVICE_PLUGIN, REGISTER, call
from gpuledger.agent.kubelet.sockets import KUBELET_SOCKET, FileIdentity, identity_of, socket_path
from gpuledger.agent.plugin.service import OPTIONS, PluginCounts, PluginService
from gpuledger.runtime.clock import Sleep

VERSION: Final = "v1beta1"

POLL_PERIOD_S: Final = 1.0

REGISTER_TIMEOUT_S: Final = 10.0
"""The kubelet dials back before it responds."""

RETRY_POLLS_MAX: Final = 30
"""A failed registration is retried after 1, 2, 4 ... polls, and after so many at most."""

UNWATCHED_POLLS_MAX: Final = 5
"""The resource registers again when the kubelet has not watched it for so many polls: the kubelet may have ended the
wrong one of two streams, and pods for which it finds no healthy device fail for good."""

STREAM_END_POLLS: Final = 2
"""The pause between the end of a stream and the next registration: the kubelet handles the end by the resource's name,
and would take a plugin that is registered again already for stopped."""

WITHDRAW_GRACE_S: Final = 2.0
"""How long the kubelet has to notice an empty list before the socket closes."""

AWAY: Final = "There is no kubelet yet; the agent waits for it."

log = structlog.get_logger("gpuledger.agent")


class PluginResource:
    """One extended resource, from the first offer of units until there are none.

    `trouble` says why the kubelet does not know the resource; None while it does.
    """

    def __init__(self, service: PluginService, folder: Path, counts: PluginCounts, *, sleep: Sleep) -> None:
        self.service = service
        self.trouble: str | None = None
        self._folder = folder
        self._counts = counts
        self._sleep = sleep
        self._server: grpc.aio.Server | None = None
        self._own: FileIdentity | None = None
        self._registered_with: FileIdentity | None = None
        self._tried: FileIdentity | None = None
        self._failures = 0
        self._polls_to_wait = 0
        self._unwatched_polls = 0
        self.alive_at: float | None = None

    @property
    def registered(self) -> bool:
        """Whether the running kubelet knows the resource."""
        return self._registered_with is not None

    async def run(self) -> None:
        """Serve the kubelet; ends when there have been no units for `WITHDRAW_GRACE_S`."""
        try:
            while not await self._is_withdrawn():
                self.alive_at = asyncio.get_running_loop().time()
                await self._poll()
                await self._sleep(POLL_PERIOD_S)
        finally:
            await self._close()

    async def _is_withdrawn(self) -> bool:
        if self.service.units:
            return False
        await self._sleep(WITHDRAW_GRACE_S)
        return not self.service.units

    async def _poll(self) -> None:
        try:
            await self._reconcile(identity_of(self._folder / KUBELET_SOCKET))
        except KubeletError as error:
            self._on_failure(str(error))

    async def _reconcile(self, kubelet: FileIdentity | None) -> None:
        """Do what is missing for the kubelet to know the resource."""
        if kubelet is None:
            self._registered_with = None
            self._set_trouble(AWAY)
            return
        if kubelet != self._tried:
            self._tried, self._failures, self._polls_to_wait = kubelet, 0, 0
        if self._polls_to_wait > 0:
            self._polls_to_wait -= 1
        elif kubelet == self._registered_with and self._own is not None and not self._is_served():
            await self._close()
            self._polls_to_wait = STREAM_END_POLLS
        elif await self._ensure_served() or kubelet != self._registered_with or self._is_unwatched():
            await self._register(kubelet)

    async def _ensure_served(self) -> bool:
        """Serve on a new socket if the own one is gone; returns whether that was so."""
        path = socket_path(self._folder, self.service.resource)
        if self._is_served():
            return False
        self._registered_with = None
        await self._close()
        try:
            self._server = await serve(f"unix:{path}", {DEVICE_PLUGIN: self.service.handlers()})
        except OSError as error:
            raise SocketError(f"{path} cannot be served: {error}. Is its folder mounted and writable?") from error
        self._own = identity_of(path)
        return True

    def _is_served(self) -> bool:
        """Whether the own socket is where the kubelet looks for it."""
        return self._own is not None and identity_of(socket_path(self._folder, self.service.resource)) == self._own

    def _is_unwatched(self) -> bool:
        """Whether the kubelet has not watched the resource for too long, though it was registered."""
        self._unwatched_polls = 0 if self.service.watchers else self._unwatched_polls + 1
        return self._unwatched_polls >= UNWATCHED_POLLS_MAX

    async def _register(self, kubelet: FileIdentity) -> None:
        self._registered_with = None
        endpoint = socket_path(self._folder, self.service.resource).name
        request = RegisterRequest(
            version=VERSION, endpoint=endpoint, resource_name=self.service.resource, options=OPTIONS
        )
        await call(self._folder / KUBELET_SOCKET, REGISTER, request, Empty, timeout_s=REGISTER_TIMEOUT_S)
        self._registered_with, self.trouble = kubelet, None
        self._failures = self._unwatched_polls = 0
        self._counts.registrations += 1
        log.info("a resource is registered", resource=self.service.resource, units=len(self.service.units))

    def _on_failure(self, reason: str) -> None:
        self._counts.errors += 1
        self._polls_to_wait = min(2**self._failures - 1, RETRY_POLLS_MAX)
        self._failures = min(self._failures + 1, RETRY_POLLS_MAX)
        self._set_trouble(reason)

    def _set_trouble(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            log.warning("a resource is not registered", resource=self.service.resource, reason=trouble)

    async def _close(self) -> None:
        """Stop to serve; grpc removes the socket's file."""
        server, self._server, self._own = self._server, None, None
        if server is not None:
            await server.stop(None)
