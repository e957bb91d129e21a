"""The services that availability needs, as a program: `availability_services.py NATS_URL DATABASE_URL KUBECONFIG`.

It tells on its standard output how it stands, one JSON object a line.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from gpuledger.api.kinds import RESOURCE_SLICE_STATUSES
from gpuledger.edge.kube.client import KubeClient, KubeRequest, Object
from gpuledger.edge.kube.kubeconfig import load_configuration
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.edge.watchers.service import run as watch
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import AvailabilityProjection
from gpuledger.runtime.garbage import short_walks
from gpuledger.runtime.telemetry import configure_logging

TELL_S = 0.1


class Report(NamedTuple):
    """What the services say of themselves: how much waits, and how many statuses they have written."""

    waiting: int
    written: int


class CountingClient(KubeClient):
    """Counts the statuses of slices that it sends."""

    written: int

    async def send(self, request: KubeRequest) -> Object:
        if (
            request.method == "PATCH"
            and request.path.startswith(RESOURCE_SLICE_STATUSES.path())
            and request.path.endswith("/status")
        ):
            self.written += 1
        return await super().send(request)


async def _serve(nats_url: str, database_url: str, kubeconfig: str) -> None:
    """The services that availability needs, in one process as in `gpuledger up`."""
    client = CountingClient(await load_configuration(Path(kubeconfig)))
    client.written = 0
    async with connect_ledger(nats_url, name="bench availability") as ledger:
        followed = FollowedLog((), ledger, database_url)
        writer = StatusWriter(ledger, database_url, client, followed)
        await asyncio.gather(
            watch(client, ledger, database_url, followed),
            Runner(AvailabilityProjection(), ledger, database_url).run(),
            writer.run(),
            _report(writer, client),
        )


async def _report(writer: StatusWriter, client: CountingClient) -> None:
    while True:
        health = writer.health()
        report = Report(health.waiting + health.failing, client.written)
        print(json.dumps(report._asdict()), flush=True)
        await asyncio.sleep(TELL_S)


if __name__ == "__main__":
    configure_logging()
    with short_walks():
        asyncio.run(_serve(*sys.argv[1:]))
