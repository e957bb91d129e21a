"""The `watchers` service: what people, drivers and kubelets say in the cluster about its GPUs, as facts.

Wiring only. One instance records at a time; the others wait for its lock.
"""

import asyncio

import psycopg
import structlog

from gpuledger.db.errors import DatabaseUnavailableError
from gpuledger.db.locks import while_locked
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.watchers.service import Watching
from gpuledger.edge.watchers.watcher import Surroundings, WatcherSettings
from gpuledger.ledger.api import Ledger
from gpuledger.runtime.backoff import Jitter, Retries, system_jitter
from gpuledger.runtime.clock import Clock, NewId, Sleep, random_id, system_clock

LOCK = "watchers"
"""The name of the lock that the leader holds."""

TRANSIENT = (DatabaseUnavailableError, psycopg.OperationalError)
"""What an instance recovers from by waiting for the lock again."""

log = structlog.get_logger("gpuledger.watchers")


async def run(
    client: KubeClient,
    ledger: Ledger,
    database_url: str,
    *,
    settings: WatcherSettings | None = None,
    clock: Clock = system_clock,
    new_id: NewId = random_id,
    jitter: Jitter = system_jitter,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Watch and record until cancelled, whenever the lock is ours; recovers from servers that go away.

    Raises:
        EventError: the ledger holds something under our name that is no event of ours.
        LedgerError: the ledger cannot be written to for good.
        DatabaseError: the database URL makes no sense.
    """
    bounds = settings or WatcherSettings()
    watching = Watching(Surroundings(client, clock, jitter, sleep, bounds), ledger, new_id)
    retries = Retries(bounds.backoff, jitter)
    while True:
        try:
            await while_locked(
                database_url, LOCK, watching.run, application_name="gpuledger watchers", check=bounds.lock_check
            )
        except TRANSIENT as error:
            if watching.took_turn():
                retries.reset()
            pause_s = retries.pause_s()
            log.warning("watchers.interrupted", reason=str(error), retry_s=round(pause_s, 3))
            await sleep(pause_s)
