"""The device plugin: makes what was set up for pools known to the node's kubelet, each pool's resource by itself.

It tells the ledger nothing: who has which units is seen by `gpuledger.agent.kubelet.pod_resources`, which is told when
the kubelet allocated some. A resource that fails harms no other.
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
from gpuledger.agent.plugin.allocate import Handing
from gpuledger.agent.plugin.cdi import CdiFolders
from gpuledger.agent.plugin.device_list import device_lists, invalid_ids
from gpuledger.agent.plugin.resource import POLL_PERIOD_S, STREAM_END_POLLS, PluginResource
from gpuledger.agent.plugin.service import Allocated, PluginContext, PluginCounts, PluginService
from gpuledger.runtime.clock import Sleep

PLUGIN_FOLDER: Final = Path("/var/lib/kubelet/device-plugins")

STUCK_AFTER_S: Final = 60.0
"""Longer than a registration that times out, by much."""

AGAIN_AFTER_S: Final = 10.0
"""A resource that failed by a mistake of ours begins anew after so long."""

log = structlog.get_logger("gpuledger.agent")


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """Where the kubelet's plugins stand, and how devices are handed over.

    `cdi_folders` are where specifications are looked for before a device is handed over by its CDI name; where there
    are none given, nobody looks.
    """

    folder: Path = PLUGIN_FOLDER
    handing: Handing = field(default_factory=Handing)
    cdi_folders: tuple[Path, ...] = ()


def _nothing(_resource: str, _ids: frozenset[str]) -> None:
    """Nobody wants to know."""


class DevicePlugin:
    """The part of the agent that serves its node's kubelet; `allocated` is called when containers are to get units."""

    name: Final = "device plugin"
    stuck_after_s: Final = STUCK_AFTER_S

    def __init__(
        self,
        board: Board,
        settings: PluginSettings,
        *,
        allocated: Allocated = _nothing,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.counts = PluginCounts()
        self._board = board
        self._folder = settings.folder
        cdi = CdiFolders(settings.cdi_folders) if settings.cdi_folders else None
        self._means = PluginContext(settings.handing, cdi, allocated)
        self._sleep = sleep
        self._resources: dict[str, PluginResource] = {}
        self._refused: tuple[str, ...] = ()
        self._alive_at: float | None = None

    @property
    def alive_at(self) -> float | None:
        """When the one of its loops that is behind all others did its work."""
        times = [self._alive_at, *(resource.alive_at or self._alive_at for resource in self._resources.values())]
        return min((time for time in times if time is not None), default=None)

    @property
    def trouble(self) -> str | None:
        """Why the kubelet does not know of some resources; None where it knows of all."""
        troubles = [f"{name}: {one.trouble}" for name, one in sorted(self._resources.items()) if one.trouble]
        return " ".join(troubles) or None

    def describe(self) -> Mapping[str, object]:
        """How each resource stands, as JSON values."""
        return {name: _described(resource) for name, resource in sorted(self._resources.items())}

    async def run(self, record: Recorder) -> None:  # noqa: ARG002 - it has nothing to tell
        """Serve until cancelled; at the end the sockets are removed."""
        self._clean()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            async for seen in self._board.changes():
                self._follow(seen, tasks)

    def _clean(self) -> None:
        try:
            if names := remove_leftovers(self._folder):
                log.info("sockets of an agent before this one are removed", sockets=names)
        except SocketError as error:
            self.counts.errors += 1
            log.warning("sockets of an agent before this one may stay", reason=str(error))

    async def _beat(self) -> None:
        while True:
            self._alive_at = asyncio.get_running_loop().time()
            await self._sleep(POLL_PERIOD_S)

    def _follow(self, seen: BoardState, tasks: asyncio.TaskGroup) -> None:
        """Give every resource its units; one that has none any more ends by itself."""
        units, cards = device_lists(seen), seen.survey.cards if seen.survey else ()
        for name in [name for name in units if units[name] and name not in self._resources]:
            service = PluginService(name, self._means, self.counts)
            self._resources[name] = PluginResource(service, self._folder, self.counts, sleep=self._sleep)
            tasks.create_task(self._keep(name, tasks))
        for name, resource in self._resources.items():
            resource.service.offer(units.get(name, ()), cards)
        self._tell_refused(invalid_ids(seen))

    async def _keep(self, name: str, tasks: asyncio.TaskGroup) -> None:
        """Run a resource until it is withdrawn; what came back while it ended begins anew."""
        try:
            await self._resources[name].run()
            log.info("a resource is withdrawn", resource=name)
            await self._sleep(STREAM_END_POLLS * POLL_PERIOD_S)
        except Exception:
            self.counts.errors += 1
            log.exception("a resource failed", resource=name, again_after_s=AGAIN_AFTER_S)
            await self._sleep(AGAIN_AFTER_S)
        del self._resources[name]
        self._follow(self._board.state, tasks)

    def _tell_refused(self, ids: tuple[str, ...]) -> None:
        if ids and ids != self._refused:
            self.counts.errors += 1
            log.warning("no kubelet takes ids as long as these; their units are not offered", ids=ids)
        self._refused = ids


def _described(resource: PluginResource) -> Mapping[str, object]:
    units = resource.service.units
    return {
        "units": len(units),
        "healthy": sum(1 for device_lists in units if device_lists.healthy),
        "registered": resource.registered,
        "watched": resource.service.watchers > 0,
        "trouble": resource.trouble,
    }
