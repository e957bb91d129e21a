"""The services that availability needs, as a program: `availability_services.py NATS_URL DATABASE_URL KUBECONFIG`.

It tells on its standard output how it stands, one JSON object a line.
"""

import asyncio
import json
import sys
from collections import deque
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from gpuledger.api.kinds import RESOURCE_SLICE_STATUSES
from gpuledger.edge.kube.client import KubeClient, KubeRequest, Object
from gpuledger.edge.kube.kubeconfig import load_configuration
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.edge.watchers.service import run as watch
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import AvailabilityProjection
from gpuledger.runtime.garbage import short_walks

TELL_S = 0.1


class Report(NamedTuple):
    """What the services say of themselves: how much waits, statuses written, the most of one slice within a pause."""

    waiting: int
    written: int
    most: int


class TimingClient(KubeClient):
    """Remembers when each status was sent, as far as the pause reaches back."""

    written: int
    most: int
    sent: dict[str, deque[float]]

    async def send(self, request: KubeRequest) -> Object:
        if (
            request.method == "PATCH"
            and request.path.startswith(RESOURCE_SLICE_STATUSES.path())
            and request.path.endswith("/status")
        ):
            self._note(request.path, perf_counter(), StatusWriterSettings().slice_status_pause_s)
        return await super().send(request)

    def _note(self, path: str, now_s: float, pause_s: float) -> None:
        sent = self.sent.setdefault(path, deque())
        sent.append(now_s)
        while sent[0] <= now_s - pause_s:
            sent.popleft()
        self.written += 1
        self.most = max(self.most, len(sent))


async def _serve(nats_url: str, database_url: str, kubeconfig: str) -> None:
    """The services that availability needs, in one process as in `gpuledger up`."""
    client = TimingClient(await load_configuration(Path(kubeconfig)))
    client.written, client.most, client.sent = 0, 0, {}
    async with connect_ledger(nats_url, name="bench availability") as ledger:
        followed = FollowedLog((), ledger, database_url)
        writer = StatusWriter(ledger, database_url, client, followed)
        await asyncio.gather(
            watch(client, ledger, database_url, followed),
            Runner(AvailabilityProjection(), ledger, database_url).run(),
            writer.run(),
            _report(writer, client),
        )


async def _report(writer: StatusWriter, client: TimingClient) -> None:
    while True:
        health = writer.health()
        report = Report(health.waiting + health.failing, client.written, client.most)
        print(json.dumps(report._asdict()), flush=True)
        await asyncio.sleep(TELL_S)


if __name__ == "__main__":
    with short_walks():
        asyncio.run(_serve(*sys.argv[1:]))
