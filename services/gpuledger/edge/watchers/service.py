"""The `watchers` service: records what people, drivers and kubelets change in the cluster about its GPUs.

One instance records at a time; the others wait for its lock. It records only into the log that the projections' rows
follow, and waits while that is another one. All watchers run side by side. Two settings affect other watchers: which
label says that a node is managed, so the Nodes are listed again whenever the ledger has another label; and which
namespaces get preflight checks, so that pods with checks are.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from gpuledger.db.engine import DATABASE_TRANSIENT
from gpuledger.db.locks import WATCHERS_LOCK, while_locked
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.watchers import metrics
from gpuledger.edge.watchers.decide import AnyKind, LastRecord
from gpuledger.edge.watchers.journal import Journal, Listener
from gpuledger.edge.watchers.journal_rows import journal_layout
from gpuledger.edge.watchers.resources import (
    claims,
    components,
    deviceclasses,
    gpudevices,
    gpupools,
    machineconfigpools,
    machineconfigs,
    moduleconfig,
    namespaces,
    nodefeatures,
    nodemachines,
    nodes,
    pods,
    preflight_pods,
    sharing_nodes,
    sharing_pods,
    slices,
    taintrules,
)
from gpuledger.edge.watchers.resources.module_refusals import Installation
from gpuledger.edge.watchers.watcher import WatchContext, Watcher, WatcherSettings
from gpuledger.events.payload import Payload
from gpuledger.events.position import order
from gpuledger.events.settings import SettingsChanged
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LedgerUnavailableError, LogChangedError
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.snapshots import Snapshots
from gpuledger.runtime.backoff import Jitter, Retries, system_jitter
from gpuledger.runtime.clock import Clock, NewId, Sleep, random_id, system_clock
from gpuledger.runtime.tasks import run_until_one_ends

TRANSIENT: Final = (LedgerUnavailableError, *DATABASE_TRANSIENT)
"""Errors after which an instance waits for the lock again."""

INDEPENDENT_KINDS: Final = (
    nodefeatures.KIND,
    gpudevices.KIND,
    nodes.LABELS_KIND,
    slices.KIND,
    claims.KIND,
    deviceclasses.KIND,
    taintrules.KIND,
    gpupools.KIND,
    gpupools.CLUSTER_KIND,
    pods.KIND,
    namespaces.KIND,
    machineconfigs.KIND,
    machineconfigpools.KIND,
    nodemachines.KIND,
)
"""Kinds whose watchers depend on no other kind."""

log = structlog.get_logger("gpuledger.watchers")


async def run(
    client: KubeClient,
    ledger: Ledger,
    database_url: str,
    followed: FollowedLog,
    *,
    settings: WatcherSettings | None = None,
    clock: Clock = system_clock,
    new_id: NewId = random_id,
    jitter: Jitter = system_jitter,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Watch and record until cancelled, while this instance holds the lock; recovers from servers that go away.

    Raises:
        EventError: the ledger has something from one of our sources that is no event of ours.
        LedgerError: the ledger cannot be written to for good.
        DatabaseError: the database URL makes no sense.
    """
    bounds = settings or WatcherSettings()
    context = WatchContext(client, clock, jitter, sleep, bounds)
    watchers = AllWatchers(context, ledger, new_id, database_url)
    retries = Retries(bounds.backoff, jitter)
    while True:
        try:
            await followed.wait()
            await while_locked(
                database_url,
                WATCHERS_LOCK,
                partial(followed.while_followed, watchers.run),
                application_name="gpuledger watchers",
                check=bounds.lock_check,
            )
        except (LogChangedError, *TRANSIENT) as error:
            if watchers.take_has_run():
                retries.reset()
            if isinstance(error, LogChangedError):
                watchers = AllWatchers(
                    context, ledger, new_id, database_url
                )  # what it recorded may be gone from the log
            pause_s = retries.pause_s()
            log.warning("watchers.interrupted", reason=str(error), retry_s=round(pause_s, 3))
            await sleep(pause_s)


class AllWatchers:
    """All watchers of an instance; their journals are kept while another instance is the leader."""

    def __init__(self, context: WatchContext, ledger: Ledger, new_id: NewId, database_url: str) -> None:
        self._in_force = SettingsInForce()
        self._context = replace(context, resync_period_s=self._in_force.resync_period_s)
        self._ledger = ledger
        self._module = moduleconfig.kind(Installation(context.settings.module, context.settings.is_scaled))
        self._new_id = new_id
        self._database_url = database_url
        self._snapshots: list[Snapshots] = []
        self._settings = self._journal(self._module, self._in_force.listen)
        self._nodes = self._journal(nodes.kind(self._in_force.label_key))
        self._checked = self._journal(preflight_pods.KIND)
        kinds = (
            *INDEPENDENT_KINDS,
            components.kind(context.settings.components_namespace),
            sharing_nodes.kind(context.settings.sharing),
            sharing_pods.kind(context.settings.sharing),
        )
        self._independent = [(kind, self._journal(kind)) for kind in kinds]
        self._has_run = False

    def _journal(self, kind: AnyKind, listener: Listener | None = None) -> Journal:
        bounds = self._context.settings.snapshots
        snapshots = Snapshots(journal_layout(kind.source), self._ledger, self._database_url, bounds)
        self._snapshots.append(snapshots)
        return Journal(self._ledger, kind, self._new_id, listener, snapshots=snapshots)

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            LogChangedError: the log lacks what was read or recorded before, while another instance was the leader.
        """
        await self._confirm_journals()
        self._has_run = True
        settings = Watcher(self._module, self._settings, self._context)
        metrics.active(True)
        try:
            await run_until_one_ends(
                settings.run(),
                self._watch_nodes(settings.listed),
                self._watch_checked(),
                *(Watcher(kind, journal, self._context).run() for kind, journal in self._independent),
                *(snapshots.run() for snapshots in self._snapshots),
            )
        finally:
            metrics.active(False)

    async def _confirm_journals(self) -> None:
        journals = (self._settings, self._nodes, self._checked, *(journal for _, journal in self._independent))
        anchors = [journal.anchor for journal in journals if journal.anchor is not None]
        await self._ledger.confirm(max(anchors, key=lambda anchor: order(anchor.sequence), default=None))

    def take_has_run(self) -> bool:
        """Whether this instance has watched since the last call."""
        has_run, self._has_run = self._has_run, False
        return has_run

    async def _watch_nodes(self, settings_listed: asyncio.Event) -> None:
        """List the Nodes again whenever another label says which of them are managed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._context.settings.first_list_s):
                await settings_listed.wait()
        while True:
            key = self._in_force.label_key
            watcher = Watcher(nodes.kind(key), self._nodes, self._context)
            await run_until_one_ends(watcher.run(), self._in_force.differs(key))

    async def _watch_checked(self) -> None:
        """List the pods with checks again whenever others are the namespaces that get checks."""
        checked = self._context.settings.checked
        while True:
            names = checked.names
            kind = preflight_pods.kind(names, self._last_of_checked)
            watcher = Watcher(kind, self._checked, self._context)
            await run_until_one_ends(watcher.run(), checked.differ(names))

    def _last_of_checked(self, pod: str) -> LastRecord | None:
        return self._checked.recorded.get(pod)


class SettingsInForce:
    """What watching depends on of the module's settings, as the ledger has them: which Nodes are managed, how often."""

    def __init__(self) -> None:
        self._settings = SettingsChanged()
        self._changed = asyncio.Event()

    @property
    def label_key(self) -> str:
        """The key of the label that says whether a node is managed."""
        return self._settings.managed_label_key

    def resync_period_s(self) -> float:
        """How often idle watchers compare their objects with the ledger."""
        return float(max(self._settings.resync_period_s, moduleconfig.RESYNC_MIN_S))

    def listen(self, payload: Payload) -> None:
        """Take them from an event."""
        if isinstance(payload, SettingsChanged):
            self._settings = payload
            self._changed.set()

    async def differs(self, key: str) -> None:
        """Return once the label has another key."""
        while self.label_key == key:
            self._changed.clear()
            await self._changed.wait()
