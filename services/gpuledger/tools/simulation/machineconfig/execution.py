"""Carries out what agents of machine configuration want of the fleet: that reports are recorded, and nodes reboot."""

from collections.abc import Iterable

from gpuledger.tools.simulation.agents import Agents
from gpuledger.tools.simulation.decide import FleetPlan, Happening
from gpuledger.tools.simulation.kubernetes import Cluster
from gpuledger.tools.simulation.machineconfig.machines import Machines
from gpuledger.tools.simulation.nodes import NodeChanges
from gpuledger.tools.simulation.reboots import NodeBooted, NodeWentDown, RebootHappening


class ConfigExecution:
    """The hosts of the fleet's nodes."""

    def __init__(self, machines: Machines, plan: FleetPlan, cluster: Cluster, agents: Agents) -> None:
        self._machines = machines
        self._plan = plan
        self._cluster = cluster
        self._agents = agents
        self._boots: dict[str, str] = {}
        """The boots that follow, of nodes that are down."""

    def begin(self) -> None:
        """Have kubelets report the boots that hosts of an earlier start have had."""
        for node, boot_id in self._machines.boots().items():
            self._cluster.set_boot(node, boot_id, is_up=True)

    async def follow(self, changes: Iterable[NodeChanges]) -> list[Happening]:
        """Hand changes of Nodes to their agents, record what agents report, and have nodes reboot that are to."""
        self._machines.follow(changes)
        for node, data, time in self._machines.take_reports():
            await self._agents.config_reported(node, data, time)
        return [one for node in self._machines.reboot_requests() for one in self._plan.reboot(node)]

    async def happen(self, happening: RebootHappening) -> None:
        """A node goes down, or is up again; its kubelet has yet to report it."""
        machines, node = self._machines, happening.node
        match happening:
            case NodeWentDown():
                before = machines.boot_of(node)
                self._boots[node] = await machines.take_down(node)
                self._cluster.set_boot(node, before, is_up=False)
            case NodeBooted():
                self._cluster.set_boot(node, self._boots.pop(node), is_up=True)

    def bring_up(self, node: str) -> None:
        """The kubelet of a node that has booted reports so, and the node's agent starts."""
        self._machines.bring_up(node)
