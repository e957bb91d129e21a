"""Carries out what happens to pods that go through checks, in the cluster and as events of their nodes' agents."""

from gpuledger.tools.simulation.agents import Agents
from gpuledger.tools.simulation.allocation import RunningPod
from gpuledger.tools.simulation.checks import statuses
from gpuledger.tools.simulation.checks.course import CheckEnded, CheckHappening, Checking, ChecksPassed, CheckStarted
from gpuledger.tools.simulation.checks.results import report_of
from gpuledger.tools.simulation.kubernetes import Cluster
from gpuledger.tools.simulation.names import place_of


class CheckExecution:
    """The kubelets of pods that go through checks; a pod that is gone meanwhile is left to its watch."""

    def __init__(self, checking: Checking, cluster: Cluster, agents: Agents) -> None:
        self._checking = checking
        self._cluster = cluster
        self._agents = agents

    async def admit(self, running_pod: RunningPod) -> bool:
        """The scheduler binds a pod, and the node's kubelet takes it; False where the pod is gone."""
        name = running_pod.pod.name
        address = self._checking.address(name)
        if not await self._cluster.bind(name, running_pod.node):
            return False
        return await self._cluster.set_status(name, lambda live, now: statuses.bound(live, address, now))

    async def happen(self, happening: CheckHappening) -> None:
        """Carry out what happens."""
        pod = happening.running_pod.pod.name
        match happening:
            case CheckStarted():
                await self._cluster.set_status(pod, lambda live, now: statuses.started(live, happening, now))
            case CheckEnded():
                if await self._cluster.set_status(pod, lambda live, now: statuses.ended(live, happening, now)):
                    await self._report(happening)
            case ChecksPassed():
                await self._cluster.set_status(pod, statuses.passed)

    async def _report(self, ended: CheckEnded) -> None:
        pod, node, shares = ended.running_pod
        cards = [share.card for share in shares]
        await self._agents.check_reported(node, report_of(ended.check, ended.result, place_of(pod.name), cards))
