"""The `watchers` service: Nodes, NodeFeatures, the ModuleConfig and people's marks on GPUDevices, as facts.

Wiring only. One instance records at a time; the others wait for its lock.
"""

import asyncio
from contextlib import suppress

import psycopg
import structlog

from gpuledger.clock import Clock, NewId, random_id, system_clock
from gpuledger.db.errors import DatabaseUnavailableError
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from gpuledger.kube.client import KubeClient
from gpuledger.kube.watch import Jitter, Sleep, system_jitter
from gpuledger.ledger.api import Ledger
from gpuledger.watchers import gpudevices, metrics, moduleconfig, nodefeatures, nodes
from gpuledger.watchers.book import Book
from gpuledger.watchers.errors import LockLostError
from gpuledger.watchers.tasks import first_of
from gpuledger.watchers.tenure import while_locked
from gpuledger.watchers.watcher import Surroundings, Watcher, WatcherSettings

TRANSIENT = (DatabaseUnavailableError, LockLostError, psycopg.OperationalError)
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
    failures = 0
    while True:
        try:
            await while_locked(
                database_url, watching.run, check_s=bounds.lock_check_s, answer_timeout_s=bounds.lock_answer_timeout_s
            )
        except TRANSIENT as error:
            failures = 1 if watching.took_turn() else failures + 1
            pause_s = bounds.backoff.pause_s(failures, jitter())
            log.warning("watchers.interrupted", reason=str(error), retry_s=round(pause_s, 3))
            await sleep(pause_s)


class Watching:
    """All watchers of an instance; what they read of the ledger is kept from one turn to the next."""

    def __init__(self, around: Surroundings, ledger: Ledger, new_id: NewId) -> None:
        self._around = around
        self._ledger = ledger
        self._new_id = new_id
        self._key = ManagedKey()
        self._settings = Book(ledger, moduleconfig.KIND, new_id, self._key.listen)
        self._nodes = Book(ledger, nodes.kind(self._key.value), new_id)
        self._features = Book(ledger, nodefeatures.KIND, new_id)
        self._devices = Book(ledger, gpudevices.KIND, new_id)
        self._turns = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        self._turns += 1
        settings = Watcher(moduleconfig.KIND, self._settings, self._around)
        metrics.active(True)
        try:
            await first_of(
                settings.run(),
                self._watch_nodes(settings.looked),
                Watcher(nodefeatures.KIND, self._features, self._around).run(),
                Watcher(gpudevices.KIND, self._devices, self._around).run(),
            )
        finally:
            metrics.active(False)

    def took_turn(self) -> bool:
        """Whether this instance has watched since the last call."""
        turns, self._turns = self._turns, 0
        return turns > 0

    async def _watch_nodes(self, looked: asyncio.Event) -> None:
        """List the Nodes anew whenever another label says which of them are managed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._around.settings.first_look_s):
                await looked.wait()
        while True:
            key = self._key.value
            watcher = Watcher(nodes.kind(key), self._nodes, self._around)
            await first_of(watcher.run(), self._key.differs(key))


class ManagedKey:
    """The key of the label that says whether a node is managed, as the ledger has it."""

    def __init__(self) -> None:
        self.value = SettingsChanged().managed_label_key
        self._changed = asyncio.Event()

    def listen(self, said: Payload) -> None:
        """Take it from the settings."""
        if isinstance(said, SettingsChanged) and said.managed_label_key != self.value:
            self.value = said.managed_label_key
            self._changed.set()

    async def differs(self, key: str) -> None:
        """Return once it is another one."""
        while self.value == key:
            self._changed.clear()
            await self._changed.wait()
