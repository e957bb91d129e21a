"""Runs the simulated fleet: nodes, agents, pods and failures, against a Kubernetes API server and the ledger.

It only carries out the plan. Plan time passes `speed` times as fast as real time; everything written to the cluster and
the ledger has the real time. A restart with the same seed continues with the same fleet, as the ledger and the cluster
have it; two simulations with one seed must not run at once.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final, Generic, TypeVar

import structlog

from gpuledger.api.kinds import CONFIG_MAPS, GPU_DEVICES, NODES, PODS, Resource
from gpuledger.api.sharing import SharingNames
from gpuledger.edge.kube.client import ALL, KubeClient, Object, Selection
from gpuledger.edge.kube.errors import KubeError, NotFoundError
from gpuledger.edge.kube.reflector import ChangeBatch, Interrupted, Listed, Reflector
from gpuledger.ledger.api import Ledger
from gpuledger.runtime.clock import Clock, Sleep
from gpuledger.runtime.tasks import end
from gpuledger.tools.simulation.agents import Agents, epoch_of
from gpuledger.tools.simulation.assignments import device_of
from gpuledger.tools.simulation.checks.gangs import gang_config
from gpuledger.tools.simulation.decide import FleetPlan
from gpuledger.tools.simulation.execution import OtherChanges, Simulation
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from gpuledger.tools.simulation.fleet_journal import FleetJournal
from gpuledger.tools.simulation.kubernetes import CHECKED, DEMO, Cluster, retrying
from gpuledger.tools.simulation.machineconfig.machines import Machines
from gpuledger.tools.simulation.nodes import seen_node
from gpuledger.tools.simulation.resume import resume_state
from gpuledger.tools.simulation.schedule import Pace
from gpuledger.tools.simulation.workload import Rates

PAUSE_MAX_S: Final = 1.0
"""The longest time until other people's changes are handled."""

EXPORTER_HEARTBEAT_MIN_S: Final = 1.0
"""The least real seconds between two heartbeats of an exporter at any speed, so that others can follow them."""

REBOOT_MIN_S: Final = 2.0
"""The least real seconds that a reboot takes at any speed, so that others can see it."""

QUEUE_MAX: Final = 256
"""Changes of one kind that wait to be handled; while so many do, the watch waits."""

T = TypeVar("T")

log = structlog.get_logger("gpuledger.simulation")


async def run(
    spec: FleetSpec,
    *,
    client: KubeClient,
    ledger: Ledger,
    clock: Clock,
    sleep: Sleep,
    speed: float,
    seed: int,
    rates: Rates | None = None,
    database_url: str | None = None,
    names: SharingNames = SharingNames(),  # noqa: B008 - it is immutable
    hosts: Path | None = None,
) -> None:
    """Simulate the fleet until cancelled.

    Args:
        spec: which fleet.
        client: of the API server; nodes, NodeFeatures, leases and pods are written there.
        ledger: where the agents record.
        clock: tells the real time.
        sleep: waits for some real seconds.
        speed: simulated seconds that a real one is.
        seed: gives the fleet its identity and everything that happens its chance.
        rates: how often things happen.
        database_url: where snapshots of what the ledger has of the fleet are kept; None: each start reads all of it.
        names: those of shared devices.
        hosts: the folder with the files of the nodes' hosts, by node; None: no node takes a machine configuration.

    Raises:
        SpeedError: the speed is out of bounds.
        KubeError: the API server refuses what was asked; while it is away it is waited for.
        LedgerError: the ledger cannot take it; while it is away it is waited for.
    """
    pace = Pace(clock(), speed)
    fleet, rates = Fleet(spec, seed, names), _seen_by_others(_failing(rates or Rates(), spec.failures), speed)
    cluster = Cluster(client, clock=clock, sleep=sleep)
    await cluster.prepare(names)
    journal = FleetJournal(ledger, epoch_of(seed), database_url)
    recorded = await retrying(journal.catch_up, sleep=sleep)
    chance = Random(f"{seed}/run/{recorded.events}")  # noqa: S311 - no secret
    state = resume_state(fleet, recorded, await cluster.pods(), await cluster.ready_components(), chance, rates)
    plan = FleetPlan(fleet, chance, rates, state.start)
    agents = Agents(ledger, epoch_of(seed), recorded.numbers, clock=clock, sleep=sleep)
    async with aclosing(Machines(fleet.nodes, hosts, client, clock)) as machines:
        simulation = Simulation(fleet, plan, cluster, agents, clock, chance, rates, machines)
        await simulation.begin(state)
        log.info("the fleet is up", fleet=str(spec), seed=seed, speed=speed, events=recorded.events)
        keeping = [] if database_url is None else [journal.run(), journal.follow(asyncio.sleep)]
        await _follow(simulation, client, pace, clock, sleep, keeping)


def _failing(rates: Rates, failures: int | None) -> Rates:
    """The same rates, with so many failures where somebody says how many."""
    return rates if failures is None else replace(rates, failures_per_1000_node_days=failures)


def _seen_by_others(rates: Rates, speed: float) -> Rates:
    """The same rates, with heartbeats, reboots and checks of pods so slow that others can follow them in real time."""
    heartbeat_s = max(rates.heartbeat_s, EXPORTER_HEARTBEAT_MIN_S * speed)
    return replace(
        rates, heartbeat_s=heartbeat_s, reboot_s=max(rates.reboot_s, REBOOT_MIN_S * speed), pace=max(1.0, speed)
    )


async def _follow(
    simulation: Simulation,
    client: KubeClient,
    pace: Pace,
    clock: Clock,
    sleep: Sleep,
    keeping: Iterable[Coroutine[Any, Any, None]],
) -> None:
    pods = KindWatch(client, PODS, lambda pod: pod, selection=DEMO, sleep=sleep)
    checked = KindWatch(client, PODS, lambda pod: pod, selection=CHECKED, sleep=sleep)
    gangs = KindWatch(client, CONFIG_MAPS, gang_config, sleep=sleep)
    devices = KindWatch(client, GPU_DEVICES, device_of, sleep=sleep)
    nodes = KindWatch(client, NODES, seen_node, sleep=sleep)
    watches = (pods, checked, devices, nodes, gangs)
    following = [asyncio.create_task(one) for one in (*(watch.run() for watch in watches), *keeping)]
    try:
        while True:
            due_s = simulation.plan.due_s
            await sleep(min(pace.wait_s(due_s), simulation.next_beat_s(), PAUSE_MAX_S))
            for one in following:
                if one.done():
                    one.result()
            seen = OtherChanges(pods.taken(), checked.taken(), devices.taken(), nodes.taken(), gangs.taken())
            await simulation.step(pace.tick(clock(), due_s), seen)
    finally:
        await end(following)


class KindWatch(Generic[T]):
    """Collects the changes of one kind of object, reduced by `read`. While its queue is full, the watch waits."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        read: Callable[[Object], T],
        *,
        selection: Selection = ALL,
        sleep: Sleep,
    ) -> None:
        self._resource = resource
        self._reflector = Reflector(client, resource, read, selection=selection, sleep=sleep)
        self._queue: asyncio.Queue[Listed[T] | ChangeBatch[T]] = asyncio.Queue(QUEUE_MAX)
        self._failing: type[KubeError] | None = None

    async def run(self) -> None:
        """Collect changes until cancelled."""
        async with aclosing(self._reflector.run()) as stream:
            async for one in stream:
                if isinstance(one, Interrupted):
                    self._log(one)
                else:
                    self._failing = None
                    await self._queue.put(one)

    def _log(self, one: Interrupted) -> None:
        """Log the first of a row of equal failures; that a cluster lacks a kind is none."""
        is_new, self._failing = self._failing is not type(one.error), type(one.error)
        if not is_new:
            return
        if isinstance(one.error, NotFoundError):
            log.info("simulation.kind-absent", resource=self._resource.full_name)
        else:
            reason = str(one.error)
            log.warning("simulation.watch-interrupted", resource=self._resource.full_name, reason=reason)

    def taken(self) -> list[Listed[T] | ChangeBatch[T]]:
        """The changes since the last call."""
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]
