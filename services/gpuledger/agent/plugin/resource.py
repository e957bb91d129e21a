"""The life of one resource: a socket of its own, made known to the kubelet for as long as there are units.

It looks again and again at what stands in the folder, and does what is missing: a socket that is gone is made anew, a
kubelet that is another one than before is told. So it does not matter in what order a kubelet wipes, ends and begins.
"""

import asyncio
from pathlib import Path
from typing import Final

import grpc.aio
import structlog

from gpuledger.agent.errors import KubeletError, SocketError
from gpuledger.agent.kubelet.deviceplugin_pb2 import Empty, RegisterRequest
from gpuledger.agent.kubelet.rpc import DEVICE_PLUGIN, REGISTER, call, serve
from gpuledger.agent.kubelet.sockets import KUBELET_SOCKET, FileIdentity, identity_of, socket_path
from gpuledger.agent.plugin.service import OPTIONS, PluginCounts, PluginService
from gpuledger.runtime.clock import Sleep

VERSION: Final = "v1beta1"

POLL_PERIOD_S: Final = 1.0
"""How often it is looked whether the kubelet or the socket is another one."""

REGISTER_TIMEOUT_S: Final = 10.0
"""The kubelet dials back before it answers."""

RETRY_POLLS_MAX: Final = 30
"""After 1, 2, 4 and so on looks a registration that failed is tried again, and after so many at most."""

UNWATCHED_POLLS_MAX: Final = 5
"""A kubelet that has not watched for so many looks is told again: it may have ended the wrong one of two streams, and
pods that it finds no healthy device for fail for good."""

STREAM_END_POLLS: Final = 2
"""A kubelet gets so many looks to see that a stream ended before it is told of the next: what it does then is done to
the resource by its name, and a plugin that is there already would be taken for stopped though its stream lives."""

WITHDRAW_GRACE_S: Final = 2.0
"""A kubelet has so long to take in that there are no units any more, before nobody answers it."""

AWAY: Final = "There is no kubelet yet; it is waited for."

log = structlog.get_logger("gpuledger.agent")


class PluginResource:
    """One extended resource, from the first offer of units until there are none."""

    def __init__(self, service: PluginService, folder: Path, counts: PluginCounts, *, sleep: Sleep) -> None:
        self.service = service
        self.trouble: str | None = None
        """Why the kubelet does not know of it; None where it does, as far as is known."""
        self._folder = folder
        self._counts = counts
        self._sleep = sleep
        self._server: grpc.aio.Server | None = None
        self._own: FileIdentity | None = None
        self._told: FileIdentity | None = None
        self._tried: FileIdentity | None = None
        self._failures = 0
        self._looks_to_wait = 0
        self._unwatched_looks = 0
        self.alive_at: float | None = None

    @property
    def registered(self) -> bool:
        """Whether the kubelet that is there was told of it."""
        return self._told is not None

    async def run(self) -> None:
        """Be there for the kubelet; ends when there have been no units for `WITHDRAW_GRACE_S`."""
        try:
            while not await self._withdrawn():
                self.alive_at = asyncio.get_running_loop().time()
                await self._look()
                await self._sleep(POLL_PERIOD_S)
        finally:
            await self._close()

    async def _withdrawn(self) -> bool:
        if self.service.units:
            return False
        await self._sleep(WITHDRAW_GRACE_S)
        return not self.service.units

    async def _look(self) -> None:
        try:
            await self._follow(identity_of(self._folder / KUBELET_SOCKET))
        except KubeletError as error:
            self._failed(str(error))

    async def _follow(self, kubelet: FileIdentity | None) -> None:
        """Do what is missing for a kubelet to know of the resource."""
        if kubelet is None:
            self._told = None
            self._note(AWAY)
            return
        if kubelet != self._tried:
            self._tried, self._failures, self._looks_to_wait = kubelet, 0, 0
        if self._looks_to_wait > 0:
            self._looks_to_wait -= 1
        elif kubelet == self._told and self._own is not None and not self._is_there():
            await self._close()
            self._looks_to_wait = STREAM_END_POLLS
        elif await self._served_anew() or kubelet != self._told or self._unwatched():
            await self._register(kubelet)

    async def _served_anew(self) -> bool:
        """Whether a new socket had to be made, because there is none or it is not ours any more."""
        path = socket_path(self._folder, self.service.resource)
        if self._is_there():
            return False
        self._told = None
        await self._close()
        try:
            self._server = await serve(path, DEVICE_PLUGIN, self.service.handlers())
        except OSError as error:
            raise SocketError(
                f"{path} cannot be served: {error}. Is its folder mounted, and may it be written?"
            ) from error
        self._own = identity_of(path)
        return True

    def _is_there(self) -> bool:
        """Whether our socket stands where the kubelet looks for it."""
        return self._own is not None and identity_of(socket_path(self._folder, self.service.resource)) == self._own

    def _unwatched(self) -> bool:
        """Whether the kubelet has not watched for too long, though it was told."""
        self._unwatched_looks = 0 if self.service.watchers else self._unwatched_looks + 1
        return self._unwatched_looks >= UNWATCHED_POLLS_MAX

    async def _register(self, kubelet: FileIdentity) -> None:
        self._told = None
        endpoint = socket_path(self._folder, self.service.resource).name
        request = RegisterRequest(
            version=VERSION, endpoint=endpoint, resource_name=self.service.resource, options=OPTIONS
        )
        await call(self._folder / KUBELET_SOCKET, REGISTER, request, Empty, timeout_s=REGISTER_TIMEOUT_S)
        self._told, self.trouble = kubelet, None
        self._failures = self._unwatched_looks = 0
        self._counts.registrations += 1
        log.info("the kubelet knows the resource", resource=self.service.resource, units=len(self.service.units))

    def _failed(self, reason: str) -> None:
        self._counts.errors += 1
        self._looks_to_wait = min(2**self._failures - 1, RETRY_POLLS_MAX)
        self._failures = min(self._failures + 1, RETRY_POLLS_MAX)
        self._note(reason)

    def _note(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            log.warning("the kubelet does not know the resource", resource=self.service.resource, reason=trouble)

    async def _close(self) -> None:
        """Stop to serve; grpc removes the socket's file."""
        server, self._server, self._own = self._server, None, None
        if server is not None:
            await server.stop(None)
