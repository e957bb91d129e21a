"""The device plugin: the part that offers units to the node's kubelet, those set up for pools and shares of devices.

There is one resource per pool, and one for each thing that pods ask of shared devices, such as `kooperator/gpu-core`.

It records nothing: `gpuledger.agent.kubelet.pod_resources` finds out which containers hold which units, and is notified
of each allocation. A resource that fails must not affect the others.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from gpuledger.agent.board import Board, BoardState
from gpuledger.agent.errors import SocketError
from gpuledger.agent.kubelet.sockets import remove_leftovers
from gpuledger.agent.part import Recorder
from gpuledger.agent.plugin.allocate import DeviceInjection
from gpuledger.agent.plugin.cdi import CdiFolders
from gpuledger.agent.plugin.device_list import ListedUnit, device_lists, invalid_ids
from gpuledger.agent.plugin.resource import POLL_PERIOD_S, STREAM_END_POLLS, PluginResource
from gpuledger.agent.plugin.service import OnAllocated, PluginContext, PluginCounts, PluginService
from gpuledger.agent.plugin.share_answers import ListPods, ShareAnswers
from gpuledger.agent.plugin.share_service import ShareService
from gpuledger.agent.plugin.share_units import share_lists
from gpuledger.api.sharing import DEFAULT_NAMES, SharingNames
from gpuledger.runtime.clock import Sleep

STUCK_AFTER_S: Final = 60.0
"""Much longer than a registration that times out."""

RESTART_AFTER_S: Final = 10.0
"""The pause before a resource that raised an unexpected error starts again."""

log = structlog.get_logger("gpuledger.agent")


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """The kubelet's folder of plugins, and how devices are injected.

    The CDI specifications in `cdi_folders` must name a device before it is injected by its CDI name; without folders
    that is not checked. `names` are those of shared devices.
    """

    folder: Path
    injection: DeviceInjection = field(default_factory=DeviceInjection)
    cdi_folders: tuple[Path, ...] = ()
    names: SharingNames = DEFAULT_NAMES


class DevicePlugin:
    """Serves the node's kubelet; see `gpuledger.agent.part.Part`."""

    name: Final = "device plugin"
    stuck_after_s: Final = STUCK_AFTER_S

    def __init__(
        self,
        board: Board,
        settings: PluginSettings,
        counts: PluginCounts | None = None,
        *,
        on_allocated: OnAllocated = lambda _resource, _ids: None,
        list_pods: ListPods | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.counts = counts or PluginCounts()
        self._board = board
        self._folder = settings.folder
        cdi = CdiFolders(settings.cdi_folders) if settings.cdi_folders else None
        self._context = PluginContext(settings.injection, cdi, on_allocated)
        self._sleep = sleep
        self._shares = (
            ShareAnswers(board, settings.names, list_pods, settings.injection, sleep=sleep)
            if list_pods is not None
            else None
        )
        self._resources: dict[str, PluginResource] = {}
        self._invalid: tuple[str, ...] = ()
        self._alive_at: float | None = None

    @property
    def alive_at(self) -> float | None:
        """When the slowest of its loops last completed a round."""
        times = [self._alive_at, *(resource.alive_at or self._alive_at for resource in self._resources.values())]
        return min((time for time in times if time is not None), default=None)

    @property
    def trouble(self) -> str | None:
        """Why the kubelet does not know some resources; None while it knows all."""
        troubles = [f"{name}: {one.trouble}" for name, one in sorted(self._resources.items()) if one.trouble]
        return " ".join(troubles) or None

    def describe(self) -> Mapping[str, object]:
        """The state of each resource, as JSON values."""
        return {name: _described(resource) for name, resource in sorted(self._resources.items())}

    async def run(self, record: Recorder) -> None:  # noqa: ARG002 - it records nothing
        """Serve until cancelled; removes the sockets at the end."""
        self._clean()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            async for state in self._board.changes():
                self._offer(state, tasks)

    def _clean(self) -> None:
        try:
            if names := remove_leftovers(self._folder):
                log.info("removed sockets of an earlier agent", sockets=names)
        except SocketError as error:
            self.counts.errors += 1
            log.warning("cannot remove sockets of an earlier agent", reason=str(error))

    async def _beat(self) -> None:
        while True:
            self._alive_at = asyncio.get_running_loop().time()
            await self._sleep(POLL_PERIOD_S)

    def _offer(self, state: BoardState, tasks: asyncio.TaskGroup) -> None:
        """Give every resource its units; one that has none any more ends by itself."""
        units, cards = self._lists(state), state.survey.cards if state.survey else ()
        for name in [name for name in units if units[name] and name not in self._resources]:
            service = self._service(name)
            self._resources[name] = PluginResource(service, self._folder, self.counts, sleep=self._sleep)
            tasks.create_task(self._run_resource(name, tasks))
        for name, resource in self._resources.items():
            resource.service.offer(units.get(name, ()), cards)
        self._warn_invalid(invalid_ids(state))

    def _lists(self, state: BoardState) -> Mapping[str, tuple[ListedUnit, ...]]:
        """The units of all resources; a pool's resource is never one of shared devices, whose domain is theirs."""
        shares = share_lists(state, self._shares.names) if self._shares is not None else {}
        return {**device_lists(state), **shares}

    def _service(self, name: str) -> PluginService:
        short = self._shares.names.short(name) if self._shares is not None else None
        if self._shares is None or short is None:
            return PluginService(name, self._context, self.counts)
        return ShareService(name, self._context, self.counts, short, self._shares)

    async def _run_resource(self, name: str, tasks: asyncio.TaskGroup) -> None:
        """Run a resource until it is withdrawn; units that were offered meanwhile start it again."""
        try:
            await self._resources[name].run()
            log.info("a resource is withdrawn", resource=name)
            await self._sleep(STREAM_END_POLLS * POLL_PERIOD_S)
        except Exception:
            self.counts.errors += 1
            log.exception("a resource failed", resource=name, restart_after_s=RESTART_AFTER_S)
            await self._sleep(RESTART_AFTER_S)
        del self._resources[name]
        self._offer(self._board.state, tasks)

    def _warn_invalid(self, ids: tuple[str, ...]) -> None:
        if ids and ids != self._invalid:
            self.counts.errors += 1
            log.warning("the kubelet takes no ids as long as these; their units are not offered", ids=ids)
        self._invalid = ids


def _described(resource: PluginResource) -> Mapping[str, object]:
    units = resource.service.units
    return {
        "units": len(units),
        "healthy": sum(1 for listed in units if listed.healthy),
        "registered": resource.registered,
        "watched": resource.service.watchers > 0,
        "trouble": resource.trouble,
    }
