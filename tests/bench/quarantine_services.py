"""What a monitor's report goes through, as a program: `quarantine_services.py NATS_URL DATABASE_URL KUBECONFIG`.

It is one process with one reader of the log, as in `gpuledger up`, and tells on its standard output how it stands, one
JSON object a line.
"""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

import structlog

from gpuledger.deciders.health.projection import HealthProjection
from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.kubeconfig import load_configuration
from gpuledger.edge.nodewriter.service import NodeWriter
from gpuledger.edge.nodewriter.settings import NodeWriterSettings
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.supervision import Supervision
from gpuledger.readmodels.projections import IncidentsProjection
from gpuledger.runtime.garbage import short_walks
from gpuledger.runtime.telemetry import configure_logging

TELL_S = 0.25


class Report(NamedTuple):
    """How the node writer stands, and how many events the slowest projection is behind; None where it is unknown."""

    state: str
    waiting: int
    lag_events: int | None


async def _serve(nats_url: str, database_url: str, kubeconfig: str) -> None:
    client = KubeClient(await load_configuration(Path(kubeconfig)))
    async with connect_ledger(nats_url, name="bench quarantine") as ledger:
        projections = (SourcesProjection(), IncidentsProjection(), HealthProjection(), MaintenanceProjection())
        supervision = Supervision(projections, ledger, database_url, check_interval_s=TELL_S)
        followed = FollowedLog((), ledger, database_url)
        writer = NodeWriter(ledger, database_url, client, followed, settings=NodeWriterSettings())
        await asyncio.gather(*supervision.work(), writer.run(), _report(writer, supervision))


async def _report(writer: NodeWriter, supervision: Supervision) -> None:
    while True:
        health = writer.health()
        behind = [one.lag_events for one in supervision.health().values()]
        slowest = None if None in behind else max(one for one in behind if one is not None)
        print(json.dumps(Report(health.state, health.waiting, slowest)._asdict()), flush=True)
        await asyncio.sleep(TELL_S)


if __name__ == "__main__":
    configure_logging()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with short_walks():
        asyncio.run(_serve(*sys.argv[1:]))
