"""Informer of one kind: keeps the cache equal to the API server, and queues the objects that changed.

A kind that the server does not have is retried for ever, without holding up the other kinds. It is logged once and is
no error: a plain cluster has no ModuleConfigs.
"""

import asyncio
from contextlib import aclosing
from functools import partial
from typing import Final

import structlog

from gpuledger.api.kinds import MODULE_CONFIG, NODE_FEATURE_RULE
from gpuledger.edge.kube.client import ALL, Selection
from gpuledger.edge.kube.errors import NotFoundError, UnavailableError
from gpuledger.edge.kube.reflector import ChangeBatch, Interrupted, Listed, Reflector
from gpuledger.edge.statuswriter.cache.objects import ListedObject, ObservedChange, read
from gpuledger.edge.statuswriter.metrics.writer import errors_of
from gpuledger.edge.statuswriter.objects import Kind, key_of
from gpuledger.edge.statuswriter.reconcile.decide import is_drift
from gpuledger.edge.statuswriter.reconcile.planner import Planner
from gpuledger.edge.statuswriter.reconcile.writer import ObjectWriter
from gpuledger.edge.statuswriter.settings import WriteContext
from gpuledger.runtime.backoff import Retries

SELECTIONS: Final = {
    Kind.RULE: Selection(fields=f"metadata.name={NODE_FEATURE_RULE}"),
    Kind.MODULE: Selection(fields=f"metadata.name={MODULE_CONFIG}"),
}

log = structlog.get_logger("gpuledger.statuswriter")


class Informer:
    """Lists, then watches, one kind."""

    def __init__(self, kind: Kind, context: WriteContext, planner: Planner, writer: ObjectWriter) -> None:
        self._kind = kind
        self._context = context
        self._planner = planner
        self._cache = planner.cache.kinds[kind]
        self._writer = writer
        self._is_absent = False

    async def run(self) -> None:
        """Run for ever. After an outage everything is listed: another server may answer."""
        retries = Retries(self._context.settings.backoff, self._context.jitter)
        while True:
            begun_s = self._context.now()
            try:
                async with asyncio.timeout(None) as until:
                    await self._reflect(until)
            except TimeoutError:
                continue
            if self._context.now() - begun_s > retries.backoff.healthy_after_s:
                retries.reset()
            await asyncio.sleep(retries.pause_s())

    def _relist_s(self) -> float:
        return max(self._context.settings.relist_period_s, self._planner.state.settings_in_force().resync_period_s)

    def _selection(self) -> Selection:
        if self._kind is Kind.COMPONENT:
            return self._planner.components.selection()
        return SELECTIONS.get(self._kind, ALL)

    async def _reflect(self, until: asyncio.Timeout) -> None:
        """List and watch until the server is away, or the list is old."""
        reflector = Reflector(
            self._context.client, self._context.resource(self._kind),
            partial(read, self._kind, names=self._context.settings.sharing),
            selection=self._selection(), backoff=self._context.settings.backoff, jitter=self._context.jitter,
        )  # fmt: skip
        async with aclosing(reflector.run()) as run:
            async for one in run:
                match one:
                    case Listed():
                        self._listed(one)
                        until.reschedule(self._context.now() + self._relist_s())
                    case ChangeBatch():
                        self._changed(one)
                    case Interrupted(error):
                        self._interrupted(one)
                        if isinstance(error, UnavailableError):
                            return

    def _interrupted(self, one: Interrupted) -> None:
        self._cache.interrupted()
        resource = self._context.resource(self._kind)
        if isinstance(one.error, NotFoundError):
            if not self._is_absent:
                log.info("watch.kind-absent", kind=str(self._kind), resource=resource.full_name)
            self._is_absent = True
            return
        errors_of(self._kind).labels(f"watch {resource.plural}").inc()
        log.info("watch.interrupted", kind=str(self._kind), reason=str(one.error), retry_s=one.pause_s)

    def _listed(self, listed: Listed[ListedObject]) -> None:
        self._is_absent = False
        self._cache.listed(listed.objects, listed.resource_version, self._context.now())
        if self._planner.state.keeps(self._kind):
            self._writer.enqueue_all(self._planner.keys(self._kind))

    def _changed(self, changes: ChangeBatch[ListedObject]) -> None:
        for change in changes.changes:
            found = self._cache.changed(change)
            if self._planner.state.keeps(self._kind):
                self._enqueue(found)

    def _enqueue(self, change: ObservedChange) -> None:
        """Queue the object, as drift where somebody else changed it."""
        key = key_of(self._kind, change.id)
        before, after = change.before, change.after
        if before is None or not is_drift(self._kind, self._planner.desired(key), before, after):
            self._writer.enqueue(key)
        elif after is None:
            self._writer.deleted(key)
        else:
            self._writer.drifted(key, after.changed_by)
