"""Watches one kind of object, and records every difference between its objects and the ledger.

Every list and every change is compared with the ledger, so it does not matter what happened between: a restart, an
expired version, a broken stream, deletions that nobody saw. Only a complete list proves that something is gone, or a
server that serves the kind in no version that we read. What was recorded is read back and compared again: whatever got
lost on the way, or was recorded late, is a difference like any other. What the ledger refuses for good is left out, and
counted. Nothing here decides what a fact is.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from gpuledger.api.kinds import NAMESPACE, Resource
from gpuledger.api.sharing import SharingNames
from gpuledger.db.locks import LockCheck
from gpuledger.edge.kube.client import KubeClient, Selection
from gpuledger.edge.kube.errors import KubeError, NotFoundError, RefusedError
from gpuledger.edge.kube.reflector import ChangeBatch, Changed, Interrupted, Listed, Reflector
from gpuledger.edge.watchers.api_discovery import cluster_of, first_served
from gpuledger.edge.watchers.checked_namespaces import CheckedNamespaces
from gpuledger.edge.watchers.decide import (
    AnyKind,
    LastRecord,
    NewFact,
    ObjectPart,
    WatchedObjects,
    differences,
    facts_about,
    note,
    subjects_to_compare,
)
from gpuledger.edge.watchers.journal import ClockAheadError, Journal
from gpuledger.edge.watchers.metrics import WatcherMetrics
from gpuledger.ledger.atomic import BATCH_MESSAGES_MAX
from gpuledger.ledger.errors import LedgerUnavailableError, PublishError
from gpuledger.projection.snapshots import SnapshotSettings
from gpuledger.runtime.backoff import Backoff, Jitter, Retries
from gpuledger.runtime.clock import Clock, Sleep
from gpuledger.runtime.tasks import ticking

FACTS_PER_PUBLISH: Final = BATCH_MESSAGES_MAX
"""One atomic batch."""

SUBJECTS_PER_TURN: Final = 250
"""How many subjects of a list are compared before other tasks run; about 50 ms."""

RESYNC_DEFAULT_S: Final = 30.0
"""How often an idle watcher compares its objects with the ledger, before the settings are known."""

EVENTS_PER_SNAPSHOT_MIN: Final = 1_000
"""How many events of a kind a start may have to read again, where the kind has few objects."""

CORRECTIONS_MAX: Final = 5
"""How often the ledger may still differ after it was read back, before that counts as an error."""

UNNAMED: Final = ""
"""Stands for a cluster that does not let us read which one it is."""

log = structlog.get_logger("gpuledger.watchers")


class ReadBackError(Exception):
    """The ledger does not have what was recorded."""


TRANSIENT: Final = (LedgerUnavailableError, PublishError, ReadBackError, ClockAheadError)
"""Errors after which a watcher reads the ledger and the list again."""


@dataclass(frozen=True, slots=True)
class WatcherSettings:
    """Settings of the watchers.

    `audit_interval_s` is how often an idle watcher compares its objects with the ledger again; None follows the
    module's setting `inventory.resyncPeriod`. The Nodes wait for a first list of the settings for `first_list_s`, and
    then use those in the ledger. Components run in `components_namespace`; pods in other namespaces do not count,
    whoever created them. `module` are the module's settings as the installation gives them; those of a ModuleConfig
    take precedence. `is_scaled`: the status writer scales the Deployments that we run in. `checked` are the namespaces
    whose pods get preflight checks; of other pods nothing about checks is recorded. `sharing` are the names of what is
    about sharing.
    """

    audit_interval_s: float | None = None
    first_list_s: float = 10.0
    lock_check: LockCheck = field(default_factory=LockCheck)
    snapshots: SnapshotSettings = field(default_factory=lambda: SnapshotSettings(events_min=EVENTS_PER_SNAPSHOT_MIN))
    backoff: Backoff = field(default_factory=Backoff)
    components_namespace: str = NAMESPACE
    module: Mapping[str, Any] = field(default_factory=dict)
    is_scaled: bool = False
    checked: CheckedNamespaces = field(default_factory=CheckedNamespaces)
    sharing: SharingNames = field(default_factory=SharingNames)


@dataclass(frozen=True, slots=True)
class WatchContext:
    """What all watchers share: API server, clock, chance and settings; `resync_period_s` is that in force."""

    client: KubeClient
    clock: Clock
    jitter: Jitter
    sleep: Sleep
    settings: WatcherSettings
    resync_period_s: Callable[[], float] = lambda: RESYNC_DEFAULT_S

    def audit_interval_s(self) -> float:
        """How often an idle watcher compares its objects with the ledger."""
        given = self.settings.audit_interval_s
        return self.resync_period_s() if given is None else given


class Watcher:
    """Keeps the ledger true about one kind of object. `listed` is set after the first complete list."""

    def __init__(self, kind: AnyKind, journal: Journal, context: WatchContext) -> None:
        self.listed = asyncio.Event()
        self._kind = kind
        self._journal = journal
        self._context = context
        self._metrics = WatcherMetrics(kind.name, context.clock)
        self._objects = WatchedObjects(kind)
        self._resource = kind.resource
        self._retries = Retries(context.settings.backoff, context.jitter)
        self._absent = False
        self._interrupted = False
        self._cluster: str | None = None
        self._is_doubtful = False
        self._problems: dict[str, tuple[str, ...]] = {}

    async def run(self) -> None:
        """Watch until cancelled, recovering from servers that go away."""
        self._metrics.began()
        try:
            while True:
                try:
                    await self._journal.catch_up()
                    await self._follow()
                except TRANSIENT as error:
                    await self._pause(error)
        finally:
            self._metrics.ended()

    async def _pause(self, error: Exception) -> None:
        pause_s = self._retries.pause_s()
        self._metrics.failed(error)
        log.warning("watcher.interrupted", watcher=self._kind.name, reason=str(error), retry_s=round(pause_s, 3))
        await self._context.sleep(pause_s)

    async def _follow(self) -> None:
        """List and watch, until another cluster answers, or this one serves another version of the kind."""
        listed = False
        async with (
            aclosing(self._reflector().run()) as run,
            aclosing(ticking(run, self._context.audit_interval_s)) as ticks,
        ):
            async for one in ticks:
                if not isinstance(one, Listed | Interrupted) and await self._is_elsewhere():
                    log.warning("watcher.elsewhere", watcher=self._kind.name, server=self._context.client.url)
                    return
                match one:
                    case None:
                        if listed:
                            await self._correct(await self._journal.catch_up() | self._journal.refusals.subjects)
                    case Listed():
                        await self._remember_cluster()
                        await self._apply_list(one.objects)
                        self._metrics.listed()
                        self._absent, listed = False, True
                    case ChangeBatch():
                        await self._apply_changes(one.changes)
                    case Interrupted():
                        self._interrupted = self._is_doubtful = True
                        served = await self._served(one.error)
                        if served is not None and served != self._resource:
                            self._resource = served
                            return
                        listed |= await self._on_interruption(one, is_absent=served is None)

    def _reflector(self) -> Reflector[ObjectPart]:
        named = self._kind.only_named
        return Reflector(
            self._context.client,
            self._resource,
            self._kind.read,
            selection=Selection(self._kind.namespace, self._kind.labels, f"metadata.name={named}" if named else ""),
            backoff=self._context.settings.backoff,
            jitter=self._context.jitter,
            sleep=self._sleep_between_streams,
        )

    async def _sleep_between_streams(self, pause_s: float) -> None:
        if not self._interrupted:
            self._metrics.answered()
        self._interrupted = False
        await self._context.sleep(pause_s)

    async def _served(self, error: KubeError) -> Resource | None:
        """The resource to watch after an error; None where the server says that it does not serve the kind at all."""
        if not isinstance(error, NotFoundError):
            return self._resource
        try:
            return await first_served(self._context.client, (self._kind.resource, *self._kind.older))
        except KubeError as unanswered:
            self._metrics.failed(unanswered)
            return self._resource

    async def _on_interruption(self, one: Interrupted, *, is_absent: bool) -> bool:
        """Whether the kind has no objects because it is not served; other interruptions prove nothing."""
        if is_absent:
            self._log_absence()
            await self._apply_list([])
            return True
        self._metrics.failed(one.error)
        log.warning(
            "watcher.interrupted", watcher=self._kind.name, reason=str(one.error), retry_s=round(one.pause_s, 3)
        )
        return False

    async def _remember_cluster(self) -> None:
        self._cluster = await self._read_cluster()
        self._is_doubtful = self._cluster is None

    async def _is_elsewhere(self) -> bool:
        """Whether another cluster answers since an interruption: its versions cannot be compared with those before."""
        if not self._is_doubtful or (found := await self._read_cluster()) is None:
            return False
        self._is_doubtful = False
        before, self._cluster = self._cluster, found
        return before is not None and UNNAMED not in (before, found) and before != found

    async def _read_cluster(self) -> str | None:
        """The cluster that answers; None where it could not be read, and has to be read again."""
        try:
            return await cluster_of(self._context.client)
        except RefusedError:
            return UNNAMED
        except KubeError as error:
            self._metrics.failed(error)
            return None

    def _log_absence(self) -> None:
        if not self._absent:
            log.info("watcher.kind-absent", watcher=self._kind.name, resource=self._kind.resource.full_name)
        self._absent = True

    async def _apply_list(self, parts: Sequence[ObjectPart]) -> None:
        self._metrics.answered()
        self._log_problems(parts)
        self._objects = WatchedObjects(self._kind, parts)
        subjects = subjects_to_compare(self._journal.recorded, self._objects)
        for start in range(0, len(subjects), SUBJECTS_PER_TURN):
            await self._correct(subjects[start : start + SUBJECTS_PER_TURN])
            await asyncio.sleep(0)
        self._retries.reset()
        self.listed.set()

    async def _apply_changes(self, changes: Sequence[Changed[ObjectPart]]) -> None:
        """Record each change, so that none is lost to the one after it."""
        self._metrics.answered()
        self._log_problems([change.object for change in changes])
        facts = self._journal.acceptable(self._facts(changes))
        for start in range(0, len(facts), FACTS_PER_PUBLISH):
            await self._record(facts[start : start + FACTS_PER_PUBLISH])
        await self._correct(sorted({fact.subject for fact in facts} | self._journal.refusals.subjects))
        self._retries.reset()

    def _facts(self, changes: Iterable[Changed[ObjectPart]]) -> Iterator[NewFact]:
        latest: dict[str, LastRecord] = {}
        now = self._context.clock()
        for change in changes:
            deleted = change.type == "DELETED"
            touched = self._objects.drop(change.object.key) if deleted else self._objects.put(change.object)
            for subject in touched:
                last = latest.get(subject) or self._journal.recorded.get(subject)
                for fact in facts_about(self._kind, subject, last, self._objects.payload(subject), now):
                    note(self._kind, latest, fact)
                    yield fact

    async def _correct(self, subjects: Collection[str]) -> None:
        """Record the differences of these subjects, and those that are left after reading back."""
        for _ in range(CORRECTIONS_MAX):
            found = differences(self._kind, self._journal.recorded, self._objects, subjects, self._context.clock())
            self._journal.refusals.settle(set(subjects) - {fact.subject for fact in found})
            self._metrics.refused(len(self._journal.refusals))
            facts = self._journal.acceptable(found)
            if not facts:
                return
            subjects = sorted(await self._record(facts) | {fact.subject for fact in facts})
        raise ReadBackError(
            f"The ledger does not have what {self._kind.source} records, {CORRECTIONS_MAX} times in a row. "
            "Look for another instance that records without the lock."
        )

    async def _record(self, facts: Sequence[NewFact]) -> set[str]:
        touched = await self._journal.record(facts)
        self._metrics.recorded(len(facts))
        return touched

    def _log_problems(self, parts: Iterable[ObjectPart]) -> None:
        """Log what could not be understood, once for each object."""
        for part in parts:
            if part.problems and part.problems != self._problems.get(part.key):
                log.warning("watcher.not-understood", watcher=self._kind.name, key=part.key, problems=part.problems)
            if part.problems:
                self._problems[part.key] = part.problems
            else:
                self._problems.pop(part.key, None)
