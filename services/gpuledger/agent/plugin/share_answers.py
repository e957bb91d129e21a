"""What containers get of shared devices: finds out which pod the kubelet is admitting, and waits for its share.

The kubelet may ask before the ledger's list has come, so a request waits for it, within a bound: the kubelet admits no
other pod meanwhile. A request that nobody can place fails, and the pod with it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from gpuledger.agent.board import Board
from gpuledger.agent.errors import KubeletError, NoShareError
from gpuledger.agent.kubelet.podresources_pb2 import ListPodResourcesResponse
from gpuledger.agent.kubelet.sockets import FileIdentity
from gpuledger.agent.plugin.allocate import ContainerAllocation, DeviceInjection, cdi_devices_of
from gpuledger.agent.plugin.matching import (
    Answered,
    NoMatch,
    ShareCall,
    ShareMatch,
    devices_of,
    listed_pods,
    match,
)
from gpuledger.agent.plugin.share_units import type_of
from gpuledger.api.sharing import GPU, SharingNames
from gpuledger.domain.sharing.container_env import HIDDEN, VISIBLE_DEVICES
from gpuledger.runtime.clock import Sleep

LOOKS_MAX: Final = 25
"""How often a request looks for its pod."""

LOOK_PERIOD_S: Final = 0.2
"""The pause between two looks; all of them take five seconds."""

ListPods = Callable[[], Awaitable[tuple[FileIdentity | None, ListPodResourcesResponse]]]
"""Asks the kubelet for its pods, and says which kubelet that is; raises KubeletError."""


class ShareAnswers:
    """Answers for all resources of shared devices."""

    def __init__(
        self, board: Board, names: SharingNames, list_pods: ListPods, injection: DeviceInjection, *, sleep: Sleep
    ) -> None:
        self.names = names
        self._board = board
        self._list_pods = list_pods
        self._injection = injection
        self._sleep = sleep
        self._answered: frozenset[Answered] = frozenset()
        self._kubelet: FileIdentity | None = None
        self._answering = asyncio.Lock()

    async def preference(self, call: ShareCall) -> tuple[str, ...]:
        """The ids of the devices that the container gets, as far as that is clear already."""
        found = await self._look(call)
        return () if isinstance(found, NoMatch) else devices_of(found, self._type_of(call))

    async def answer(self, call: ShareCall, specified: Callable[[], frozenset[str]] | None) -> ContainerAllocation:
        """What the container gets; `specified` has the names in the node's CDI specifications.

        Raises:
            NoShareError: nobody can tell which pod it is for.
            CdiError: its devices go by CDI names that no specification has.
        """
        async with self._answering:
            found = await self._found(call)
            cdi_devices = cdi_devices_of(
                devices_of(found, GPU), self._injection, specified() if specified is not None else None
            )
            self._answered = self._live() | {found.answered(call)}
        envs = dict(found.environment)
        if VISIBLE_DEVICES in envs and not self._injection.by_env:
            envs[VISIBLE_DEVICES] = HIDDEN
        return ContainerAllocation(envs, cdi_devices)

    async def _found(self, call: ShareCall) -> ShareMatch:
        found = await self._look(call)
        for _ in range(LOOKS_MAX):
            if isinstance(found, ShareMatch) or not found.passing:
                break
            await self._sleep(LOOK_PERIOD_S)
            found = await self._look(call)
        if isinstance(found, NoMatch):
            raise NoShareError(found.reason)
        return found

    async def _look(self, call: ShareCall) -> ShareMatch | NoMatch:
        try:
            kubelet, pods = await self._list_pods()
        except KubeletError as error:
            return NoMatch(f"The kubelet does not say which pods it has: {error}")
        if kubelet != self._kubelet:
            # It may have lost its memory, and then asks for everybody again.
            self._kubelet, self._answered = kubelet, frozenset()
        return match(call, self._board.state.allocated, listed_pods(pods, self.names), self._answered)

    def _type_of(self, call: ShareCall) -> str:
        shared = self._board.state.shared
        return type_of(call.resource, {one.type for one in shared.devices} if shared is not None else {GPU})

    def _live(self) -> frozenset[Answered]:
        """The answers to pods that are still there."""
        uids = {pod.uid for pod in self._board.state.allocated}
        return frozenset(each for each in self._answered if each.uid in uids)
