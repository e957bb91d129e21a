"""Has pods leave the nodes that are drained, by the eviction API, and records how far each drain is.

A node that is drained is looked at again and again, until no pod is left that had to leave. Before each eviction the
intent is checked once more, so that a release stops the drain at once. A drain ends where its Node is not cordoned and
no intent is about to cordon it: whoever cordons it later did not ask for a drain. An eviction names the uid of its pod,
and a pod that terminates is not evicted again: what was done stands in the cluster, so a restart repeats nothing.

In the mode DeleteAfterTimeout a pod is deleted whose eviction a disruption budget has refused for long enough. That is
recorded before, with the budget; the deletion names the pod's uid as well, and leaves it its grace period.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

import structlog

from gpuledger.api.kinds import NODES, PODS
from gpuledger.edge.kube.circuit_breaker import SERVER_TROUBLE
from gpuledger.edge.kube.client import Object, Selection
from gpuledger.edge.kube.errors import ConflictError, DisruptionBudgetError, KubeError, NotFoundError, RefusedError
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.kube.work_queue import WorkQueue
from gpuledger.edge.nodewriter import metrics
from gpuledger.edge.nodewriter.decide import drain_superseded
from gpuledger.edge.nodewriter.drain_intents import DrainIntent, DrainOutcome
from gpuledger.edge.nodewriter.drain_plan import (
    TERMINATING,
    Leaving,
    is_of_nodes,
    leaving,
    staying,
    times_out_at,
    waits_for,
)
from gpuledger.edge.nodewriter.executor import Tools
from gpuledger.edge.nodewriter.intents import Intents
from gpuledger.events.maintenance import (
    PODS_LISTED_MAX,
    DrainState,
    LeavingPod,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeDrainSuperseded,
    NodeDrainTimedOut,
    NodePodDeletionRequested,
)
from gpuledger.events.payload import truncated

UNTIL_CORDONED: Final = "Waits until the node is cordoned"
UNCORDONED: Final = (
    "The node is not cordoned: somebody uncordoned it, or it could not be cordoned. Ask for the drain again, such as "
    "with `gpuledger node drain`."
)
STOPPED: Final = "Stays: the drain has ended"

log = structlog.get_logger("gpuledger.nodewriter")

Pods = tuple[LeavingPod, ...]


class _Refusal(NamedTuple):
    """Why a pod could not be evicted, how often so far, and when the next attempt may be made."""

    state: str
    failures: int
    retry_at_s: float


class _Report(NamedTuple):
    """The last report of a drain: what it has, when it was made, and its number."""

    left: int
    pods: Pods
    at_s: float
    number: int


class Drainer:
    """Works on nodes with drains that are not over.

    What was recorded here counts at once: the fold has it only when it comes back with the log.
    """

    def __init__(self, intents: Intents, queue: WorkQueue[str], tools: Tools) -> None:
        self._intents = intents
        self._drains = intents.drains
        self._queue = queue
        self._tools = tools
        self._over: set[str] = set()
        self._timed_out: set[str] = set()
        self._reports: dict[str, _Report] = {}
        self._refusals: dict[str, dict[str, _Refusal]] = {}
        self._deletions: dict[str, set[str]] = {}
        self._failures: dict[str, int] = {}

    def enqueue(self, nodes: Iterable[str]) -> None:
        """Look at these nodes."""
        for node in nodes:
            self._queue.add(node)
        metrics.DRAINING.set(len(self._drains.nodes()))

    def forget_returned(self) -> None:
        """Forget what was recorded of drains that are over in the fold too."""
        if not (self._over or self._reports or self._deletions):
            return
        nodes = self._drains.nodes()
        open_now = {one.intent for node in nodes for one in self._drains.about(node)}
        self._over &= open_now
        self._timed_out &= open_now
        self._reports = {intent: report for intent, report in self._reports.items() if intent in open_now}
        self._deletions = {intent: uids for intent, uids in self._deletions.items() if intent in open_now}

    async def run(self) -> None:
        """Work for ever."""
        while True:
            node = await self._queue.take()
            try:
                await self._work_on(node)
            finally:
                self._queue.done(node)

    async def _work_on(self, node: str) -> None:
        try:
            for intent in self._drains.about(node):
                if intent.intent not in self._over:
                    await self._advance(intent)
        except KubeError as error:
            self._retry_later(node, error)
            return
        self._failures.pop(node, None)
        if any(intent.intent not in self._over for intent in self._drains.about(node)):
            self._queue.add(node, self._queue.now_s() + self._tools.settings.drain_poll_s)
        else:
            self._refusals.pop(node, None)

    async def _advance(self, intent: DrainIntent) -> None:
        outcome = self._superseded(intent) or await self._drain(intent)
        if outcome is not None:
            await self._tools.recorder.record(intent, outcome)
            self._over.add(intent.intent)
            metrics.count_drain(outcome)
            reason = outcome.reason if isinstance(outcome, NodeDrainSuperseded) else ""
            log.info("nodewriter.drain-over", node=intent.node, intent=intent.intent, reason=reason)

    def _superseded(self, intent: DrainIntent) -> NodeDrainSuperseded | None:
        newest = self._drains.newest.get(intent.node)
        fresh = intent if newest is None or newest.intent != intent.intent else newest
        return drain_superseded(
            fresh,
            newest=newest and newest.intent,
            now=self._tools.clock(),
            max_age=self._tools.settings.max_age,
        )

    async def _drain(self, intent: DrainIntent) -> DrainOutcome | None:
        """Evict whom it is time for; returns the outcome once there is one."""
        client, request = self._tools.client, self._tools.breaker.request
        isolations = self._intents.isolations
        is_to_be_cordoned = bool(isolations.about(intent.node))  # Before the Node is read, and not behind it.
        try:
            async with request():
                node = await client.get(NODES, intent.node)
        except NotFoundError:
            return NodeDrainSuperseded(intent=intent.intent, reason="NodeGone")
        if node["metadata"]["uid"] != intent.uid:
            return NodeDrainSuperseded(intent=intent.intent, reason="NodeGone")
        is_cordoned = _is_cordoned(node)
        needs_cordon = is_of_nodes(intent.drains)
        if needs_cordon and not (is_cordoned or is_to_be_cordoned):
            return NodeDrainSuperseded(intent=intent.intent, reason="NotCordoned", message=UNCORDONED)
        async with request():
            listed = await client.list(PODS, Selection(fields=f"spec.nodeName={intent.node}"))
        untouched = self._tools.settings.untouched_namespaces
        holds = partial(self._holds, intent.node)
        drains = intent.drains
        found = leaving(listed.items, intent.node, drains, untouched, holds, self._begun(intent))
        stays = tuple(staying(listed.items, intent.node, drains, untouched, holds))
        may_evict = is_cordoned or not needs_cordon
        if not found and may_evict:
            return NodeDrainFinished(intent=intent.intent, stays=stays)
        self._forget_refusals(intent.node, {one.uid for one in found})
        pods = [
            LeavingPod(namespace=one.namespace, pod=one.pod, state=await self._step(intent, one, may_evict))
            for one in found
        ]
        ended = self._superseded(intent)
        if ended is None:
            shown = tuple(pods[:PODS_LISTED_MAX])
            await self._report(intent, DrainState(intent=intent.intent, left=len(pods), pods=shown, stays=stays))
        return ended

    def _begun(self, intent: DrainIntent) -> dict[str, datetime]:
        """When the drains of each owner began; those that have not are about to."""
        now = self._tools.clock()
        return {**{one.owner: now for one in intent.drains}, **intent.begun_at}

    def _holds(self, node: str, pod: Object, devices: Collection[str]) -> bool | None:
        return self._intents.holds(pod, node, devices)

    async def _step(self, intent: DrainIntent, pod: Leaving, may_evict: bool) -> str:
        """Evict a pod if it is time; returns what it waits for."""
        if (waits := waits_for(pod, self._tools.clock())) is not None:
            return waits
        if not may_evict:
            return UNTIL_CORDONED
        before = self._refusals.get(intent.node, {}).get(pod.uid)
        if before is not None and self._queue.now_s() < before.retry_at_s:
            return before.state
        return await self._evict(intent, pod)

    async def _evict(self, intent: DrainIntent, pod: Leaving) -> str:
        try:
            async with self._tools.breaker.request():
                if self._superseded(intent) is not None:
                    return STOPPED
                await self._tools.client.evict(pod.pod, pod.namespace, uid=pod.uid)
        except (NotFoundError, ConflictError):
            return TERMINATING  # It is gone, or another by now: the next look has what is there.
        except DisruptionBudgetError as error:
            reasons = "; ".join(cause.message for cause in error.causes if cause.message) or str(error)
            if pod.delete_at is not None and pod.delete_at <= self._tools.clock():
                return await self._delete(intent, pod, truncated(reasons))
            return self._refused(intent.node, pod, f"Blocked: {reasons}", error)
        except RefusedError as error:
            if isinstance(error, SERVER_TROUBLE):
                raise
            return self._refused(intent.node, pod, f"Refused: {error}", error)
        metrics.EVICTIONS.labels("Evicted").inc()
        log.info("nodewriter.evicted", node=intent.node, namespace=pod.namespace, pod=pod.pod, uid=pod.uid)
        return TERMINATING

    async def _delete(self, intent: DrainIntent, pod: Leaving, blocked: str) -> str:
        """Delete a pod that a disruption budget has kept for too long; its grace period is its own."""
        data = NodePodDeletionRequested(
            intent=intent.intent, namespace=pod.namespace, pod=pod.pod, uid=pod.uid, blocked=blocked
        )
        recorded = self._deletions.setdefault(intent.intent, set())
        if pod.uid not in recorded:
            await self._tools.recorder.record(intent, data, pod.uid)
            recorded.add(pod.uid)
        try:
            async with self._tools.breaker.request():
                if self._superseded(intent) is not None:
                    return STOPPED
                await self._tools.client.delete(PODS, pod.pod, pod.namespace, uid=pod.uid)
        except (NotFoundError, ConflictError):
            return TERMINATING
        except RefusedError as error:
            if isinstance(error, SERVER_TROUBLE):
                raise
            return self._refused(intent.node, pod, f"Not deleted: {error}", error)
        metrics.EVICTIONS.labels("Deleted").inc()
        shown = {"namespace": pod.namespace, "pod": pod.pod, "uid": pod.uid, "blocked": blocked}
        log.warning("nodewriter.deleted", node=intent.node, **shown)
        return truncated(f"{TERMINATING}: deleted, because its eviction was refused for too long: {blocked}")

    def _refused(self, node: str, pod: Leaving, state: str, error: KubeError) -> str:
        metrics.EVICTIONS.labels("Blocked" if isinstance(error, DisruptionBudgetError) else "Refused").inc()
        refusals = self._refusals.setdefault(node, {})
        failures = refusals[pod.uid].failures + 1 if pod.uid in refusals else 1
        retry_after_s = error.retry_after_s if isinstance(error, DisruptionBudgetError) else None
        pause_s = self._tools.settings.blocked_backoff.pause_s(failures, self._tools.jitter(), retry_after_s)
        refusals[pod.uid] = _Refusal(truncated(state), failures, self._queue.now_s() + pause_s)
        return refusals[pod.uid].state

    def _forget_refusals(self, node: str, uids: set[str]) -> None:
        before = self._refusals.get(node, {})
        self._refusals[node] = {uid: one for uid, one in before.items() if uid in uids}

    async def _report(self, intent: DrainIntent, state: DrainState) -> None:
        """Record how far the drain is: where it is due, and once where it took too long."""
        has_timed_out = intent.has_timed_out or intent.intent in self._timed_out
        if not has_timed_out and self._tools.clock() >= times_out_at(intent.drains, self._begun(intent)):
            self._timed_out.add(intent.intent)
            log.warning("nodewriter.drain-timed-out", node=intent.node, left=state.left)
            await self._record_report(intent, NodeDrainTimedOut(**dict(state)))
        elif self._is_due(intent, state):
            await self._record_report(intent, NodeDrainProgressed(**dict(state)))

    def _is_due(self, intent: DrainIntent, state: DrainState) -> bool:
        last, settings = self._reports.get(intent.intent), self._tools.settings
        if last is None:
            return True
        age_s = self._queue.now_s() - last.at_s
        has_changed = (last.left, last.pods) != (state.left, state.pods)
        return age_s >= settings.drain_fresh_s or (has_changed and age_s >= settings.drain_reports.pause_s(last.number))

    async def _record_report(self, intent: DrainIntent, data: NodeDrainProgressed | NodeDrainTimedOut) -> None:
        last = self._reports.get(intent.intent)
        number = max(intent.reports, 0 if last is None else last.number) + 1
        await self._tools.recorder.record(intent, data, str(number))
        self._reports[intent.intent] = _Report(data.left, data.pods, self._queue.now_s(), number)

    def _retry_later(self, node: str, error: KubeError) -> None:
        metrics.RETRIES.labels(type(error).__name__).inc()
        failures = self._failures[node] = self._failures.get(node, 0) + 1
        pause_s = self._tools.settings.refused_backoff.pause_s(failures, self._tools.jitter())
        log.warning("nodewriter.drain-waits", node=node, reason=str(error), retry_s=round(pause_s, 3))
        self._queue.add(node, self._queue.now_s() + pause_s)


def _is_cordoned(node: Object) -> bool:
    return mapping(node, "spec").get("unschedulable") is True
