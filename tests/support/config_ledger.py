"""A ledger with a pool of machine configuration, and the service `rollout` that decides about it, for commands."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from gpuledger.api.machine_config import ZONE_LABEL
from gpuledger.deciders.rollout.projection import RolloutProjection
from gpuledger.events.allocation import AllocatedDevices, AllocationObserved
from gpuledger.events.envelope import Decoded
from gpuledger.events.machine_config import NodeMachineObserved
from gpuledger.events.node import NodeLabelled
from gpuledger.events.payload import Payload
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from gpuledger.runtime.clock import system_clock
from support.events import event
from support.ledgers import everything
from support.machine_configs import config_file, config_pool, machine_config
from support.projections import QUICK, publish, reaches, running
from support.waiting import eventually

POOL = "gpu"
ZONES = {"n1": "zone-a", "n2": "zone-a", "n3": "zone-b"}


def by(source: str, time: datetime, *facts: tuple[str, Payload], first: int = 1) -> list[Decoded]:
    """What a source says about subjects at a time."""
    numbered = enumerate(facts, first)
    return [event(data, subject, number=at, source=source)._replace(time=time) for at, (subject, data) in numbered]


def recorded() -> list[Decoded]:
    """A pool of three nodes that have nothing yet, of two hours ago; a pod holds two devices of the first."""
    time = system_clock() - timedelta(hours=2)
    labels = [(name, NodeLabelled(uid=f"uid-{name}", labels={ZONE_LABEL: zone})) for name, zone in ZONES.items()]
    machines = [(name, NodeMachineObserved(uid=f"uid-{name}", created=time)) for name in ZONES]
    held = AllocatedDevices(resource="nvidia.com/gpu", devices=("GPU-1", "GPU-2"))
    pod = AllocationObserved(node="n1", namespace="ml", pod="trainer", container="main", resources=(held,))
    base = machine_config(config_file("/etc/motd", "hello\n"), uid="base")
    return [
        *by("/watchers/nodes", time, *labels),
        *by("/watchers/nodemachines", time, *machines),
        *by("/nodes/n1/agent", time, ("n1/ml/trainer/main", pod)),
        *by("/watchers/machineconfigs", time, ("base", base)),
        *by("/watchers/machineconfigpools", time, (POOL, config_pool(debounce_s=0))),
    ]


@asynccontextmanager
async def deciding(
    ledger: JetStreamLedger, database_url: str
) -> AsyncIterator[Callable[[list[Decoded]], Awaitable[None]]]:
    """The service, running; what it gives records facts, and returns when another state of a pool is decided."""

    async def states() -> int:
        subjects = [one.subject for one in await everything(ledger)]
        return sum(".machineconfigpool." in one and one.endswith(".changed") for one in subjects)

    async def record(facts: list[Decoded]) -> None:
        before = await states()
        await publish(ledger, facts)

        async def is_decided() -> bool:
            return await states() > before

        await eventually(is_decided)
        await reaches(database_url, RolloutProjection.name, await ledger.head())

    async with running(Runner(RolloutProjection(), ledger, database_url, settings=QUICK)):
        yield record
