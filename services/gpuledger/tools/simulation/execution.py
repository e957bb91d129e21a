"""Carries out the plan of the simulated fleet, in the cluster and as events of the agents. It decides nothing.

Everything written to the cluster and the ledger has the real time, because that is when it happened there.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from random import Random
from typing import Final, NamedTuple

from gpuledger.edge.kube.client import Object
from gpuledger.edge.kube.reflector import ChangeBatch, Listed
from gpuledger.runtime.clock import Clock
from gpuledger.tools.simulation import decide
from gpuledger.tools.simulation.agents import Agents
from gpuledger.tools.simulation.allocation import RunningPod
from gpuledger.tools.simulation.assignments import DeviceChanges
from gpuledger.tools.simulation.checks.course import CheckEnded, ChecksPassed, CheckStarted
from gpuledger.tools.simulation.checks.execution import CheckExecution
from gpuledger.tools.simulation.checks.gangs import GangChanges
from gpuledger.tools.simulation.cordons import Cordons
from gpuledger.tools.simulation.decide import FleetPlan, Happening
from gpuledger.tools.simulation.fleet import Fleet, FleetNode
from gpuledger.tools.simulation.kubernetes import Cluster, side_by_side
from gpuledger.tools.simulation.labels import in_order
from gpuledger.tools.simulation.machineconfig.execution import ConfigExecution
from gpuledger.tools.simulation.machineconfig.machines import Machines
from gpuledger.tools.simulation.names import DEMO_NAMESPACE, place_of
from gpuledger.tools.simulation.nodes import NodeChanges, seen_node
from gpuledger.tools.simulation.pooling import Pooling
from gpuledger.tools.simulation.preparation import ComponentReady, ComponentsStarted, HeartBeat, PreparationHappening
from gpuledger.tools.simulation.reboots import NodeBooted, NodeWentDown, RebootHappening
from gpuledger.tools.simulation.resume import VANISHED, ResumeState, is_own_pod, is_terminating, name_of, pod_from
from gpuledger.tools.simulation.workload import Rates

STEP_HAPPENINGS_MAX: Final = 100
"""The most happenings to carry out in one step."""

HEARTBEAT_S: Final = 10.0
HEARTBEATS_PER_S_MAX: Final = 50.0
"""The most lease renewals per second; large fleets renew less often, and their leases last longer."""

CardHappening = decide.CardFailed | decide.CardReturned | decide.CardRemoved | decide.CardInserted
PodChanges = Listed[Object] | ChangeBatch[Object]


NICS_RECORDED_MAX: Final = 3
"""How often the NICs of a node are recorded in a run; they never change."""


class OtherChanges(NamedTuple):
    """What other people changed: pods of the demo namespace, pods with checks, GPUDevices, Nodes, gangs' ConfigMaps."""

    pods: Iterable[PodChanges]
    checked: Iterable[PodChanges]
    devices: Iterable[DeviceChanges]
    nodes: Iterable[NodeChanges]
    gangs: Iterable[GangChanges]


class Simulation:
    """Carries the plan out."""

    def __init__(
        self,
        fleet: Fleet,
        plan: FleetPlan,
        cluster: Cluster,
        agents: Agents,
        clock: Clock,
        chance: Random,
        rates: Rates,
        machines: Machines,
    ) -> None:
        self.plan = plan
        self._pooling = Pooling(fleet, plan, cluster, agents)
        self._cordons = Cordons(fleet, plan)
        self._configs = ConfigExecution(machines, plan, cluster, agents)
        self._checks = CheckExecution(plan.checking, cluster, agents)
        self._fleet = fleet
        self._cluster = cluster
        self._agents = agents
        self._clock = clock
        self._chance = chance
        self._rates = rates
        self._recorded: set[str] = set()
        """Pods whose scheduling is in the ledger."""

        self._nics_recorded: dict[str, int] = {}
        self._created: dict[str, datetime] = {}
        """When the pending pods were created."""

        self._period_s = max(HEARTBEAT_S, len(fleet.nodes) / HEARTBEATS_PER_S_MAX)
        self._next_beat = clock()

    async def begin(self, state: ResumeState) -> None:
        """Bring the fleet up, or resume it."""
        self._configs.begin()
        self._recorded = {running_pod.pod.name for running_pod in state.start.running}
        nodes = list(self._fleet.nodes.values())
        await side_by_side(self._register, nodes)
        for node in nodes:
            await self._observe(node.name)
        for pod, phase in state.over.items():
            await self._agents.ended(pod, phase)
        for running_pod in self.plan.lost:
            await self._end(running_pod, VANISHED)
            await self._cluster.delete(running_pod.pod.name)
        await self._agents.flush()
        await side_by_side(self._cluster.delete, state.stray)
        await side_by_side(self._discover, nodes)
        # The watch of Nodes comes too late for the pods that wait already.
        seen = [seen_node(node) for node in await self._cluster.nodes()]
        await self._carry_out(self._cordons.follow([Listed(seen, "")]))

    def next_beat_s(self) -> float:
        """Real seconds until the next heartbeat."""
        return max(0.0, (self._next_beat - self._clock()).total_seconds())

    async def step(self, to_s: float, seen: OtherChanges) -> None:
        """Carry out what is due, and the consequences of other people's changes."""
        if self.next_beat_s() == 0:
            self._next_beat = self._clock() + timedelta(seconds=self._period_s)
            down = self.plan.allocation.down
            up = [node for name, node in self._fleet.nodes.items() if name not in down]
            await self._cluster.beat(up, self._period_s)
        await self._carry_out(self._cordons.follow(seen.nodes))
        await self._carry_out(await self._configs.follow(seen.nodes))
        await self._carry_out(self.plan.advance(to_s, STEP_HAPPENINGS_MAX))
        for one in seen.pods:
            await self._carry_out(await self._follow(one, _is_demo))
        for one in seen.checked:
            await self._carry_out(await self._follow(one, _is_elsewhere))
        for gangs in seen.gangs:
            self.plan.checking.follow(gangs)
        await self._pooling.follow(seen.devices)
        await self._carry_out(await self._pooling.release())
        await self._agents.flush()

    async def _carry_out(self, happenings: Iterable[Happening]) -> None:
        for happening in happenings:
            await self._happen(happening)

    async def _happen(self, happening: Happening) -> None:
        match happening:
            case decide.PodArrived(_, pod):
                self._created[pod.name] = self._clock()
                await self._cluster.create(pod)
            case decide.PodScheduled(_, running_pod):
                await self._start(running_pod)
            case decide.PodEnded(_, running_pod, outcome):
                await self._end(running_pod, outcome)
            case decide.PodDeleted(_, pod):
                await self._cluster.delete(pod.name)
            case CheckStarted() | CheckEnded() | ChecksPassed():
                await self._checks.happen(happening)
            case ComponentsStarted() | ComponentReady() | HeartBeat():
                await self._prepare(happening)
            case NodeWentDown() | NodeBooted():
                await self._reboot(happening)
            case decide.CardFailed() | decide.CardReturned() | decide.CardRemoved() | decide.CardInserted():
                await self._change_card(happening)

    async def _change_card(self, happening: CardHappening) -> None:
        match happening:
            case decide.CardFailed():
                await self._fail(happening)
            case decide.CardReturned(_, slot_id, card):
                await self._agents.healthy(slot_id.node, card)
                await self._agents.reported_healthy(slot_id.node, card)
                await self._report(slot_id.node)
            case decide.CardRemoved(_, slot_id) | decide.CardInserted(_, slot_id):
                await self._observe(slot_id.node)
                await self._report(slot_id.node)
                await self._discover(self._fleet.nodes[slot_id.node])

    async def _prepare(self, happening: PreparationHappening) -> None:
        match happening:
            case ComponentsStarted(_, node):
                await self._cluster.start_components(node)
            case ComponentReady(_, node, component):
                await self._cluster.component_ready(node, component)
            case HeartBeat(_, node):
                await self._agents.heart_beat(node)
                await self._observe_nics(node)

    async def _reboot(self, happening: RebootHappening) -> None:
        await self._configs.happen(happening)
        await self._report(happening.node)
        if isinstance(happening, NodeBooted):
            self._configs.bring_up(happening.node)

    async def _fail(self, failed: decide.CardFailed) -> None:
        node, card, xid = failed.slot_id.node, failed.card, failed.xid
        if not failed.out_of_service:
            await self._agents.errors_observed(node, card, xid.kind, xid.message)
            return
        await self._agents.failed(node, card, xid.kind, xid.message)
        await self._agents.reported(node, card, xid, failed.remedy)
        await self._agents.unhealthy(node, card, xid.kind, xid.message)
        await self._report(node)

    async def _start(self, running_pod: RunningPod) -> None:
        name = running_pod.pod.name
        created = self._created.pop(name, None) or self._clock()
        has_checks = running_pod.pod.checks is not None
        start = self._checks.admit(running_pod) if has_checks else self._cluster.start(name, running_pod.node)
        if await start:
            self._recorded.add(name)
            await self._agents.scheduled(running_pod, created)
        else:
            await self._carry_out(self.plan.vanished(name))

    async def _end(self, running_pod: RunningPod, outcome: str) -> None:
        name = running_pod.pod.name
        if outcome == decide.DELETED:
            await self._cluster.delete(name)
        else:
            await self._cluster.finish(name, outcome)
        if name in self._recorded:
            self._recorded.discard(name)
            await self._agents.ended(name, outcome)

    async def _register(self, node: FleetNode) -> None:
        allocation = self.plan.allocation
        await self._cluster.register(node, allocation.cards(node.name), allocation.in_service(node.name))

    async def _report(self, node: str) -> None:
        allocation = self.plan.allocation
        await self._cluster.report(self._fleet.nodes[node], allocation.cards(node), allocation.in_service(node))

    async def _discover(self, node: FleetNode) -> None:
        await self._cluster.discover(node, self.plan.allocation.cards(node.name))

    async def _observe(self, node: str) -> None:
        await self._agents.observed(node, in_order(self.plan.allocation.cards(node)))

    async def _observe_nics(self, node: str) -> None:
        """Record the NICs with the first heartbeats: a new ledger takes a moment until such events count there."""
        times = self._nics_recorded.get(node, 0)
        if times < NICS_RECORDED_MAX and (nics := self._fleet.nics(node)):
            await self._agents.nics_observed(node, nics)
            self._nics_recorded[node] = times + 1

    async def _follow(self, changes: PodChanges, concerned: Callable[[str], bool]) -> list[Happening]:
        """The consequences of other people's changes to the pods that a watch is for."""
        if isinstance(changes, Listed):
            live = {name_of(pod): pod for pod in changes.objects}
            missing = [name for name in self.plan.pods() if concerned(name) and name not in live]
            gone = [name for name in missing if not await self._cluster.has_pod(name)]
            ended = [happening for name in gone for happening in self._vanished(name)]
            return [*ended, *(one for name in live if concerned(name) for one in self._changed(live[name]))]
        return [
            happening
            for change in changes.changes
            if concerned(name := name_of(change.object))
            for happening in (self._vanished(name) if change.type == "DELETED" else self._changed(change.object))
        ]

    def _vanished(self, name: str) -> list[Happening]:
        self._created.pop(name, None)
        return self.plan.vanished(name)

    def _changed(self, live: Object) -> list[Happening]:
        name = name_of(live)
        if is_terminating(live):
            return self._vanished(name)
        if is_own_pod(live) or live["spec"].get("nodeName"):
            return []
        pod = pod_from(self._fleet, live, self._chance, self._rates)
        if pod is None:
            return []
        self._created.setdefault(name, self._clock())
        return self.plan.submitted(pod)


def _is_demo(pod: str) -> bool:
    return place_of(pod).namespace == DEMO_NAMESPACE


def _is_elsewhere(pod: str) -> bool:
    return not _is_demo(pod)
