"""Follows the API server's objects of one kind, so that what is known of them is true, and has what changed looked at.

A kind that the server does not have is asked for again and again, and is nothing to the other kinds.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial

import structlog

from gpuledger.api.kinds import MODULE_CONFIG, NODE_FEATURE_RULE
from gpuledger.edge.kube.client import ALL, KubeClient, Selection
from gpuledger.edge.kube.errors import UnavailableError
from gpuledger.edge.kube.reflector import Changes, Interrupted, Listed, Reflector
from gpuledger.edge.statuswriter.cache.objects import View
from gpuledger.edge.statuswriter.cache.observed import Change, Seen, read
from gpuledger.edge.statuswriter.metrics.writer import errors_of
from gpuledger.edge.statuswriter.reconcile.decide import RESOURCES, Kind, is_changed_by_others, key_of
from gpuledger.edge.statuswriter.reconcile.writer import Writer
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.runtime.backoff import Jitter, Retries

SELECTIONS = {
    Kind.RULE: Selection(fields=f"metadata.name={NODE_FEATURE_RULE}"),
    Kind.MODULE: Selection(fields=f"metadata.name={MODULE_CONFIG}"),
}

log = structlog.get_logger("gpuledger.statuswriter")


class Following:
    """Lists, then watches, one kind."""

    def __init__(
        self,
        kind: Kind,
        client: KubeClient,
        view: View,
        writer: Writer,
        settings: StatusWriterSettings,
        *,
        now: Callable[[], float],
        jitter: Jitter,
    ) -> None:
        self._kind = kind
        self._client = client
        self._view = view
        self._known = view.known[kind]
        self._writer = writer
        self._settings = settings
        self._now = now
        self._jitter = jitter

    async def run(self) -> None:
        """Follow for ever. After an outage all is listed: who answers may be another server."""
        retries = Retries(self._settings.backoff, self._jitter)
        while True:
            begun_s = self._now()
            try:
                async with asyncio.timeout(None) as until:
                    await self._reflect(until)
            except TimeoutError:
                continue
            if self._now() - begun_s > retries.backoff.healthy_after_s:
                retries.reset()
            await asyncio.sleep(retries.pause_s())

    def _relist_s(self) -> float:
        return max(self._settings.relist_period_s, self._view.wanted.settings_in_force().resync_period_s)

    def _selection(self) -> Selection:
        if self._kind is Kind.COMPONENT:
            return self._view.components.selection()
        return SELECTIONS.get(self._kind, ALL)

    async def _reflect(self, until: asyncio.Timeout) -> None:
        """Follow until the server is away, or the list is old."""
        reflector = Reflector(
            self._client, RESOURCES[self._kind], partial(read, self._kind),
            selection=self._selection(), backoff=self._settings.backoff, jitter=self._jitter,
        )  # fmt: skip
        async with aclosing(reflector.run()) as run:
            async for one in run:
                match one:
                    case Listed():
                        self._listed(one)
                        until.reschedule(self._now() + self._relist_s())
                    case Changes():
                        self._changed(one)
                    case Interrupted(error):
                        self._known.interrupted()
                        errors_of(self._kind).labels(f"watch {RESOURCES[self._kind].plural}").inc()
                        log.info("watch.interrupted", kind=str(self._kind), reason=str(error), retry_s=one.pause_s)
                        if isinstance(error, UnavailableError):
                            return

    def _listed(self, listed: Listed[Seen]) -> None:
        self._known.listed(listed.objects, listed.resource_version)
        if self._view.wanted.keeps(self._kind):
            self._writer.look_through(self._view.keys(self._kind))

    def _changed(self, changes: Changes[Seen]) -> None:
        for change in changes.changes:
            found = self._known.changed(change)
            if self._view.wanted.keeps(self._kind):
                self._weigh(found)

    def _weigh(self, change: Change) -> None:
        """Whether a change was ours to expect, or somebody else's."""
        key = key_of(self._kind, change.id)
        before, after = change.before, change.after
        if before is None or not is_changed_by_others(self._kind, self._view.desired(key), before, after):
            self._writer.look(key)
        elif after is None:
            self._writer.deleted(key)
        else:
            self._writer.disturbed(key, after.changed_by)
