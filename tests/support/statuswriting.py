"""The status writer for tests: quick to try again, on a client that counts, and settled when nothing is left to do."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from gpuledger.db.locks import LockCheck
from gpuledger.edge.kube.client import KubeClient, KubeRequest, Object
from gpuledger.edge.kube.kubeconfig import load_configuration
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.events.position import is_at_or_after
from gpuledger.ledger.api import Ledger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.runtime.backoff import Backoff
from support.kept_running import kept_running
from support.waiting import eventually

WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
BACKOFF = Backoff(first_s=0.02, max_s=0.2, healthy_after_s=5.0)
QUICK = StatusWriterSettings(
    backoff=BACKOFF, refused_backoff=BACKOFF, restart_backoff=BACKOFF, lock_check=LockCheck(interval_s=0.1),
    stopped_retry_s=0.05, corrections_per_hour_max=3, events_per_s=100.0, orphan_grace_s=0.05,
)  # fmt: skip


class CountingClient(KubeClient):
    """Remembers the writes that it sent, what else it asked, and how often it listed GPUDevices."""

    written: list[str]
    asked: list[str]
    lists: int

    async def send(self, request: KubeRequest) -> Object:
        if request.method in WRITING:
            self.written.append(f"{request.method} {request.path}")
        else:
            self.asked.append(request.what.partition(' "')[0])
        self.lists += request.what.startswith("list gpudevices")
        return await super().send(request)

    def objects_written(self) -> list[str]:
        """What was written but Events, and the ConfigMap that names the cluster's ledger."""
        return [one for one in self.written if "/events" not in one and "/configmaps" not in one]


@asynccontextmanager
async def counting(kubeconfig: Path, kind: type[CountingClient] = CountingClient) -> AsyncIterator[CountingClient]:
    """A client that has counted nothing yet."""
    client = kind(await load_configuration(kubeconfig))
    client.written, client.asked, client.lists = [], [], 0
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def status_writer(
    ledger: Ledger,
    database_url: str,
    client: KubeClient,
    settings: StatusWriterSettings = QUICK,
    followed: FollowedLog | None = None,
) -> AsyncIterator[StatusWriter]:
    """A status writer that runs until the block ends; without `followed`, no rows have to follow the ledger."""
    async with (
        aclosing(followed or FollowedLog((), ledger, database_url)) as log,
        kept_running(StatusWriter(ledger, database_url, client, log, settings=settings)) as writer,
    ):
        yield writer


async def all_written(writer: StatusWriter, ledger: Ledger) -> None:
    """Return when everything in the ledger was reconciled."""
    head = await ledger.head()

    async def is_settled() -> bool:
        health = writer.health()
        return health.state in {"writing", "disabled"} and (
            is_at_or_after(health.position, head) and not health.waiting and not health.unlisted and not health.failing
        )

    await eventually(is_settled)
