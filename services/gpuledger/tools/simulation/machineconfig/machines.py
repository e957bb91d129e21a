"""The simulated nodes that take machine configurations: each a host of its own, and its agent while it is up.

A node gets a host and an agent with its first annotation of machine configuration, so that a fleet without pools of
machine configuration costs nothing. The agents' reports and their requests for a reboot wait until they are taken.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from gpuledger.configagent.agent import ConfigAgent
from gpuledger.configagent.host import Host
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.machine_config import NodeConfigReported
from gpuledger.runtime.clock import Clock
from gpuledger.runtime.tasks import end
from gpuledger.tools.simulation.machineconfig.hosts import MachineFolder
from gpuledger.tools.simulation.machineconfig.node_api import SimulatedNodeApi
from gpuledger.tools.simulation.machineconfig.systemd import SimulatedSystemd
from gpuledger.tools.simulation.nodes import NodeChanges, present_nodes


class ConfigReport(NamedTuple):
    """What a node's agent of machine configuration reports, and when."""

    node: str
    data: NodeConfigReported
    time: datetime


class Machine:
    """A node's host, and its agent while it runs; `reports` gets what the agent reports."""

    def __init__(self, folder: MachineFolder, client: KubeClient, clock: Clock, reports: "deque[ConfigReport]") -> None:
        self.api = SimulatedNodeApi(client, folder.node)
        self._folder = folder
        self._clock = clock
        self._reports = reports
        self._systemd = SimulatedSystemd(folder, clock)
        self._task: asyncio.Task[None] | None = None
        folder.prepare()

    @property
    def boot_id(self) -> str:
        """The identity of the host's boot."""
        return self._folder.boot_id

    @property
    def wants_reboot(self) -> bool:
        """Whether the agent has asked for a reboot that has not begun."""
        return self._folder.has_reboot_request

    def start(self) -> None:
        """Have the agent run from now on, if it does not."""
        if self._task is None:
            self._task = asyncio.create_task(self._agent().run())

    def check(self) -> None:
        """Raise what ended the agent, which only ends when it is stopped."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """Have the agent end."""
        if self._task is not None:
            await end([self._task])
            self._task = None

    def boot(self) -> str:
        """Boot the host again, without its agent; returns the boot's identity."""
        boot_id = self._folder.boot()
        self._systemd.boot()
        return boot_id

    def _agent(self) -> ConfigAgent:
        folder = self._folder
        host = Host(
            root=folder.root,
            state_dir=folder.agent_folder,
            systemd=self._systemd,
            reboot=folder.request_reboot,
            boot_id=lambda: folder.boot_id,
            owned=False,
        )
        return ConfigAgent(node=folder.node, host=host, api=self.api, reports=self._report, clock=self._clock)

    async def _report(self, data: NodeConfigReported) -> None:
        self._reports.append(ConfigReport(self._folder.node, data, self._clock()))


class Machines:
    """The nodes of a fleet that take machine configurations; `folder` has their hosts, by node (None: none does)."""

    def __init__(self, nodes: Collection[str], folder: Path | None, client: KubeClient, clock: Clock) -> None:
        self._nodes = nodes
        self._folder = folder
        self._client = client
        self._clock = clock
        self._of: dict[str, Machine] = {}
        self._down: set[str] = set()
        self._reports: deque[ConfigReport] = deque()

    def boots(self) -> dict[str, str]:
        """The boot of each host that there is already."""
        if self._folder is None:
            return {}
        hosts = (MachineFolder(self._folder, node) for node in self._nodes)
        return {host.node: host.boot_id for host in hosts if host.root.is_dir()}

    def boot_of(self, node: str) -> str:
        """The identity of a host's boot."""
        return self._of[node].boot_id

    def follow(self, changes: Iterable[NodeChanges]) -> None:
        """Hand the agents what these changes say of their nodes."""
        for one in changes:
            for seen in present_nodes(one, self._of):
                if seen.annotations and seen.node in self._nodes and seen.node not in self._of and self._folder:
                    folder = MachineFolder(self._folder, seen.node)
                    self._of[seen.node] = Machine(folder, self._client, self._clock, self._reports)
                if machine := self._of.get(seen.node):
                    machine.api.deliver(seen.annotations)
                    self._start(seen.node)

    def take_reports(self) -> list[ConfigReport]:
        """What the agents have reported since the last call."""
        return [self._reports.popleft() for _ in range(len(self._reports))]

    def reboot_requests(self) -> list[str]:
        """The nodes whose agents have asked for a reboot that has not begun."""
        for machine in self._of.values():
            machine.check()
        return [node for node, machine in self._of.items() if node not in self._down and machine.wants_reboot]

    async def take_down(self, node: str) -> str:
        """A node goes down: its agent ends. Returns the identity of the boot that follows.

        That is written at once, so that a simulation that is interrupted meanwhile has rebooted the node.
        """
        self._down.add(node)
        await self._of[node].stop()
        return self._of[node].boot()

    def bring_up(self, node: str) -> None:
        """A node is up again, and its agent runs."""
        self._down.discard(node)
        self._start(node)

    async def aclose(self) -> None:
        """End all agents."""
        for machine in self._of.values():
            await machine.stop()

    def _start(self, node: str) -> None:
        if node not in self._down:
            self._of[node].start()
