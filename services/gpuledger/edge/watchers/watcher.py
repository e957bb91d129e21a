"""Follows one kind of object, and records what the ledger does not say of it yet.

Every list and every change is compared with the ledger, so it does not matter what happened between: a restart, an
expired version, a stream that broke, deletions that nobody saw. Only a list that came whole says that something is
gone, and so does the server's word that it serves the kind in no version that we read. What was recorded is read
back, and compared again: what got lost, or in late, on the way is a difference like any other. Nothing here decides
what a fact is.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import structlog

from gpuledger.api.kinds import NAMESPACE, Resource
from gpuledger.db.locks import LockCheck
from gpuledger.edge.kube.client import KubeClient, Selection
from gpuledger.edge.kube.errors import KubeError, NotFoundError, RefusedError
from gpuledger.edge.kube.reflector import Changed, Changes, Interrupted, Listed, Reflector
from gpuledger.edge.watchers.api_discovery import cluster_of, first_served
from gpuledger.edge.watchers.decide import (
    Fact,
    Kind,
    Known,
    Part,
    View,
    differences,
    facts_about,
    note,
    subjects_to_compare,
)
from gpuledger.edge.watchers.errors import RecordingError
from gpuledger.edge.watchers.journal import Book
from gpuledger.edge.watchers.metrics import WatcherMetrics
from gpuledger.ledger.errors import LedgerUnavailableError, PublishError
from gpuledger.runtime.backoff import Backoff, Jitter, Retries
from gpuledger.runtime.clock import Clock, Sleep
from gpuledger.runtime.tasks import ticking

FACTS_PER_PUBLISH: Final = 1000
"""One atomic batch."""

SUBJECTS_PER_TURN: Final = 250
"""What of a list is compared before others get their turn; about 50 ms."""

MENDS_MAX: Final = 5
"""How often what was read back may still differ before it counts as an error."""

UNTOLD: Final = ""
"""Stands for a cluster that does not let us ask which one it is."""

TRANSIENT: Final = (LedgerUnavailableError, PublishError, RecordingError)
"""What a watcher recovers from by reading the ledger and the list again."""

log = structlog.get_logger("gpuledger.watchers")


@dataclass(frozen=True, slots=True)
class WatcherSettings:
    """Bounds of the watchers.

    `audit_interval_s` is how often a quiet watcher looks whether somebody else recorded under its name; `first_look_s`
    how long the Nodes wait for the settings to be looked up before what the ledger says of them will do. Components are
    looked for in `components_namespace` alone: pods elsewhere, whoever made them, do not speak for them.
    """

    audit_interval_s: float = 30.0
    first_look_s: float = 10.0
    lock_check: LockCheck = field(default_factory=LockCheck)
    backoff: Backoff = field(default_factory=Backoff)
    components_namespace: str = NAMESPACE


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every watcher is given: the server, the time, chance and patience."""

    client: KubeClient
    clock: Clock
    jitter: Jitter
    sleep: Sleep
    settings: WatcherSettings


class Watcher:
    """Keeps the ledger true about one kind of object. `looked` is set once the server has said what there is."""

    def __init__(self, kind: Kind, book: Book, around: Surroundings) -> None:
        self.looked = asyncio.Event()
        self._kind = kind
        self._book = book
        self._around = around
        self._metrics = WatcherMetrics(kind.name, around.clock)
        self._view = View(kind)
        self._resource = kind.resource
        self._retries = Retries(around.settings.backoff, around.jitter)
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
                    await self._book.catch_up()
                    await self._follow()
                except TRANSIENT as error:
                    await self._pause(error)
        finally:
            self._metrics.ended()

    async def _pause(self, error: Exception) -> None:
        pause_s = self._retries.pause_s()
        self._metrics.failed(error)
        log.warning("watcher.interrupted", watcher=self._kind.name, reason=str(error), retry_s=round(pause_s, 3))
        await self._around.sleep(pause_s)

    async def _follow(self) -> None:
        """From a list on, until another cluster answers, or this one serves another version of the kind."""
        looked = False
        async with (
            aclosing(self._reflector().run()) as run,
            aclosing(ticking(run, self._around.settings.audit_interval_s)) as ticks,
        ):
            async for one in ticks:
                if not isinstance(one, Listed | Interrupted) and await self._is_elsewhere():
                    log.warning("watcher.elsewhere", watcher=self._kind.name, server=self._around.client.url)
                    return
                match one:
                    case None:
                        if looked:
                            await self._mend(await self._book.catch_up())
                    case Listed():
                        await self._remember_cluster()
                        await self._take_all(one.objects)
                        self._metrics.listed()
                        self._absent, looked = False, True
                    case Changes():
                        await self._take(one.changes)
                    case Interrupted():
                        self._interrupted = self._is_doubtful = True
                        served = await self._served(one.error)
                        if served is not None and served != self._resource:
                            self._resource = served
                            return
                        looked |= await self._on_interruption(one, is_absent=served is None)

    def _reflector(self) -> Reflector[Part]:
        named = self._kind.only_named
        return Reflector(
            self._around.client,
            self._resource,
            self._kind.read,
            selection=Selection(self._kind.namespace, self._kind.labels, f"metadata.name={named}" if named else ""),
            backoff=self._around.settings.backoff,
            jitter=self._around.jitter,
            sleep=self._sleep_between_streams,
        )

    async def _sleep_between_streams(self, pause_s: float) -> None:
        if not self._interrupted:
            self._metrics.heard()
        self._interrupted = False
        await self._around.sleep(pause_s)

    async def _served(self, error: KubeError) -> Resource | None:
        """What to follow after an error: None where the server's word is that it does not serve the kind at all."""
        if not isinstance(error, NotFoundError):
            return self._resource
        try:
            return await first_served(self._around.client, (self._kind.resource, *self._kind.older))
        except KubeError as unanswered:
            self._metrics.failed(unanswered)
            return self._resource

    async def _on_interruption(self, one: Interrupted, *, is_absent: bool) -> bool:
        """Whether there is nothing of the kind, as the kind is not served; anything else says nothing."""
        if is_absent:
            self._tell_absence()
            await self._take_all([])
            return True
        self._absent = False
        self._metrics.failed(one.error)
        log.warning(
            "watcher.interrupted", watcher=self._kind.name, reason=str(one.error), retry_s=round(one.pause_s, 3)
        )
        return False

    async def _remember_cluster(self) -> None:
        self._cluster = await self._asked_cluster()
        self._is_doubtful = self._cluster is None

    async def _is_elsewhere(self) -> bool:
        """Whether another cluster answers since an interruption: its versions count something else than ours."""
        if not self._is_doubtful or (found := await self._asked_cluster()) is None:
            return False
        self._is_doubtful = False
        before, self._cluster = self._cluster, found
        return before is not None and UNTOLD not in (before, found) and before != found

    async def _asked_cluster(self) -> str | None:
        """The cluster that answers; None where it could not be asked, and is to be asked again."""
        try:
            return await cluster_of(self._around.client)
        except RefusedError:
            return UNTOLD
        except KubeError as error:
            self._metrics.failed(error)
            return None

    def _tell_absence(self) -> None:
        if not self._absent:
            log.info("watcher.kind-absent", watcher=self._kind.name, resource=self._kind.resource.full_name)
        self._absent = True

    async def _take_all(self, parts: Sequence[Part]) -> None:
        self._metrics.heard()
        self._tell_problems(parts)
        self._view = View(self._kind, parts)
        subjects = subjects_to_compare(self._book.known, self._view)
        for start in range(0, len(subjects), SUBJECTS_PER_TURN):
            await self._mend(subjects[start : start + SUBJECTS_PER_TURN])
            await asyncio.sleep(0)
        self._retries.reset()
        self.looked.set()

    async def _take(self, changes: Sequence[Changed[Part]]) -> None:
        """Each change after the other, so that none is lost to the one after it."""
        self._metrics.heard()
        self._tell_problems([change.object for change in changes])
        facts = list(self._facts(changes))
        for start in range(0, len(facts), FACTS_PER_PUBLISH):
            await self._record(facts[start : start + FACTS_PER_PUBLISH])
        await self._mend(sorted({fact.subject for fact in facts}))
        self._retries.reset()

    def _facts(self, changes: Iterable[Changed[Part]]) -> Iterator[Fact]:
        said: dict[str, Known] = {}
        now = self._around.clock()
        for change in changes:
            deleted = change.type == "DELETED"
            touched = self._view.drop(change.object.key) if deleted else self._view.put(change.object)
            for subject in touched:
                known = said.get(subject) or self._book.known.get(subject)
                for fact in facts_about(self._kind, subject, known, self._view.payload(subject), now):
                    note(self._kind, said, fact)
                    yield fact

    async def _mend(self, subjects: Iterable[str]) -> None:
        """Record what differs about these subjects, and what still does when it is read back."""
        for _ in range(MENDS_MAX):
            facts = differences(self._kind, self._book.known, self._view, subjects, self._around.clock())
            if not facts:
                return
            subjects = sorted(await self._record(facts) | {fact.subject for fact in facts})
        raise RecordingError(
            f"What {self._kind.source} records is not what the ledger says afterwards, {MENDS_MAX} times in a row. "
            "Look for another instance that records without the lock."
        )

    async def _record(self, facts: Sequence[Fact]) -> set[str]:
        touched = await self._book.record(facts)
        self._metrics.recorded(len(facts))
        return touched

    def _tell_problems(self, parts: Iterable[Part]) -> None:
        """Tell of what could not be understood, once for each."""
        for part in parts:
            if part.problems and part.problems != self._problems.get(part.key):
                log.warning("watcher.not-understood", watcher=self._kind.name, key=part.key, problems=part.problems)
            if part.problems:
                self._problems[part.key] = part.problems
            else:
                self._problems.pop(part.key, None)
