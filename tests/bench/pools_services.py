"""The services between annotations and pools, as a program.

It is called as `pools_services.py NATS_URL DATABASE_URL KUBECONFIG RELIST_S`, and tells on its standard output how it
stands, one JSON object a line.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from prometheus_client import REGISTRY

from bench.rebuilding import peak_kib
from gpuledger.api.kinds import GPU_DEVICES, Resource
from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.edge.kube.client import ALL, PAGE_LIMIT, KubeClient, ObjectList, Selection
from gpuledger.edge.kube.kubeconfig import load_configuration
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.edge.watchers.service import INDEPENDENT_KINDS
from gpuledger.edge.watchers.service import run as watch
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.runner import Runner
from gpuledger.runtime.garbage import short_walks
from gpuledger.runtime.telemetry import configure_logging

TELL_S = 0.25
WATCHERS = len(INDEPENDENT_KINDS) + 4
"""Those, settings, Nodes, pods with checks and components."""


class Report(NamedTuple):
    """What the services say of themselves: `lists` of all GPUDevices are done, the last of which took `list_s`."""

    state: str
    watchers: int
    unlisted: int
    waiting: int
    writes: int
    lists: int
    list_s: float
    imports_kib: int
    peak_kib: int


class ListingClient(KubeClient):
    """Counts lists of all GPUDevices."""

    lists: int
    list_s: float

    async def collect(
        self, resource: Resource, read: Callable[[Any], Any], selection: Selection = ALL, *, page: int = PAGE_LIMIT
    ) -> ObjectList[Any]:
        began = perf_counter()
        found = await super().collect(resource, read, selection, page=page)
        if resource == GPU_DEVICES:
            self.lists, self.list_s = self.lists + 1, perf_counter() - began
        return found


async def _serve(nats_url: str, database_url: str, kubeconfig: str, relist_s: str) -> None:
    """The services in one process, as in `gpuledger up`."""
    imports_kib = peak_kib()
    client = ListingClient(await load_configuration(Path(kubeconfig)))
    client.lists, client.list_s = 0, 0.0
    async with connect_ledger(nats_url, name="bench pools") as ledger:
        followed = FollowedLog((), ledger, database_url)
        writer = StatusWriter(
            ledger, database_url, client, followed, settings=StatusWriterSettings(relist_period_s=float(relist_s))
        )
        projections = (InventoryProjection(), BootstrapProjection(), PoolsProjection())
        await asyncio.gather(
            watch(client, ledger, database_url, followed),
            *(Runner(projection, ledger, database_url).run() for projection in projections),
            writer.run(),
            _report(writer, client, imports_kib),
        )


async def _report(writer: StatusWriter, client: ListingClient, imports_kib: int) -> None:
    while True:
        health = writer.health()
        waiting, unlisted = health.waiting + health.failing, len(health.unlisted)
        report = Report(
            health.state,
            _watchers(),
            unlisted,
            waiting,
            _writes(),
            client.lists,
            client.list_s,
            imports_kib,
            peak_kib(),
        )
        print(json.dumps(report._asdict()), flush=True)
        await asyncio.sleep(TELL_S)


def _watchers() -> int:
    """How many watchers have compared all that there is."""
    return sum(value > 0 for value in _samples("gpuledger_watcher_lists_total"))


def _writes() -> int:
    return int(sum(_samples("gpuledger_statuswriter_writes_total")))


def _samples(name: str) -> list[float]:
    counted = REGISTRY.restricted_registry([name]).collect()  # the others take time, which is not to be measured
    return [one.value for family in counted for one in family.samples if one.name == name]


if __name__ == "__main__":
    configure_logging()
    with short_walks():
        asyncio.run(_serve(*sys.argv[1:]))
