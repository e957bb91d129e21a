"""The simulated fleet: nodes, agents, pods and failures, against a Kubernetes API server and the ledger.

Carries out what the plan says, and nothing else. Real time passes `speed` times as fast in the plan; what is written to
the cluster and to the ledger has the real time, because that is when it happened there. Started again with the same
seed it goes on with the same fleet, as the ledger and the cluster have it; two of one seed must not run at once.
"""

import asyncio
from dataclasses import replace
from random import Random
from typing import Final

import structlog

from gpuledger.api.kinds import GPU_DEVICES, PODS
from gpuledger.edge.kube.client import KubeClient
from gpuledger.ledger.api import Ledger
from gpuledger.runtime.clock import Clock, Sleep
from gpuledger.runtime.tasks import end
from gpuledger.tools.simulation.agents import Agents, epoch_of
from gpuledger.tools.simulation.decide import Plan
from gpuledger.tools.simulation.execution import Simulation
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from gpuledger.tools.simulation.follow import Follower
from gpuledger.tools.simulation.kubernetes import DEMO, Cluster
from gpuledger.tools.simulation.pace import Pace
from gpuledger.tools.simulation.patience import patiently
from gpuledger.tools.simulation.pools import device_of
from gpuledger.tools.simulation.resume import found, recorded_of
from gpuledger.tools.simulation.workload import Rates

PAUSE_MAX_S: Final = 1.0
"""How long other people's pods wait to be looked at."""

EXPORTER_HEARTBEAT_MIN_S: Final = 1.0
"""Real seconds between two heartbeats of an exporter, whatever the speed: what follows from them needs its time."""

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

    Raises:
        SpeedError: the speed is out of bounds.
        KubeError: the API server refuses what was asked; while it is away it is waited for.
        LedgerError: the ledger cannot take it; while it is away it is waited for.
    """
    pace = Pace(clock(), speed)
    fleet, rates = Fleet(spec, seed), _seen_by_others(rates or Rates(), speed)
    cluster = Cluster(client, clock=clock, sleep=sleep)
    await cluster.prepare()
    recorded = await patiently(lambda: recorded_of(ledger, fleet), sleep=sleep)
    chance = Random(f"{seed}/run/{recorded.events}")  # noqa: S311 - no secret
    state = found(fleet, recorded, await cluster.pods(), await cluster.ready_components(), chance, rates)
    plan = Plan(fleet, chance, rates, state.start)
    agents = Agents(ledger, epoch_of(seed), recorded.numbers, clock=clock, sleep=sleep)
    simulation = Simulation(fleet, plan, cluster, agents, clock, chance, rates)
    await simulation.begin(recorded, state)
    log.info("the fleet is up", fleet=str(spec), seed=seed, speed=speed, events=recorded.events)
    await _follow(simulation, client, pace, clock, sleep)


def _seen_by_others(rates: Rates, speed: float) -> Rates:
    """The same rates, with heartbeats so far apart that others can follow them in real time."""
    return replace(rates, heartbeat_s=max(rates.heartbeat_s, EXPORTER_HEARTBEAT_MIN_S * speed))


async def _follow(simulation: Simulation, client: KubeClient, pace: Pace, clock: Clock, sleep: Sleep) -> None:
    pods = Follower(client, PODS, lambda pod: pod, selection=DEMO, sleep=sleep)
    devices = Follower(client, GPU_DEVICES, device_of, sleep=sleep)
    following = [asyncio.create_task(pods.run()), asyncio.create_task(devices.run())]
    try:
        while True:
            due_s = simulation.plan.due_s
            await sleep(min(pace.wait_s(due_s), simulation.next_beat_s(), PAUSE_MAX_S))
            for one in following:
                if one.done():
                    one.result()
            await simulation.step(pace.tick(clock(), due_s), pods.taken(), devices.taken())
    finally:
        await end(following)
