"""Carries intents about nodes out, and has the outcome of each recorded.

Many nodes are written side by side, each by one worker at a time, and read together where several are queued. A write
names the version of the Node that it is based on, so whoever was faster is never overwritten: the Node is read again,
and planned anew.

No worker waits for the ledger to have an outcome. Those that are reached at about the same time are recorded together,
because every reader of the log folds and commits what comes at once. An outcome that a crash takes is reached again:
the Node is as desired by then, and is not written a second time.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import structlog

from gpuledger.api.kinds import NODES
from gpuledger.edge.effects.tools import EffectTools
from gpuledger.edge.kube.circuit_breaker import is_refusal
from gpuledger.edge.kube.errors import ConflictError, KubeError, NotFoundError, RefusedError
from gpuledger.edge.kube.work_queue import WorkQueue
from gpuledger.edge.nodewriter import metrics
from gpuledger.edge.nodewriter.decide import superseded
from gpuledger.edge.nodewriter.intents import Intent, Intents, Outcome
from gpuledger.edge.nodewriter.plan import NodePlan, Object, plan
from gpuledger.edge.nodewriter.reads import NodeReads
from gpuledger.edge.nodewriter.settings import NodeWriterSettings
from gpuledger.events.maintenance import NodeIsolationApplied, NodeIsolationFailed, NodeIsolationSuperseded
from gpuledger.events.payload import truncated

log = structlog.get_logger("gpuledger.nodewriter")

Tools = EffectTools[NodeWriterSettings]


class Executor:
    """Works on nodes with intents that have no outcome.

    An outcome that was reached here counts at once: the fold has it only when it comes back with the log.
    """

    def __init__(self, intents: Intents, queue: WorkQueue[str], tools: Tools) -> None:
        self._intents = intents.isolations
        self._queue = queue
        self._tools = tools
        self._reads = NodeReads(tools.client, tools.breaker)
        self._reached: set[str] = set()
        self._to_record = asyncio.Queue[tuple[Intent, Outcome]](tools.settings.outcomes_waiting_max)
        self._unrecorded = 0
        self._at_rest = asyncio.Event()
        self._failures: dict[str, int] = {}
        self._refusals: dict[str, int] = {}

    @property
    def failing(self) -> int:
        """How many nodes are tried again later."""
        return len(self._failures)

    @property
    def waiting(self) -> int:
        """How many nodes are queued or being worked on, and outcomes not recorded yet."""
        return len(self._queue) + self._unrecorded

    def enqueue(self, nodes: Iterable[str]) -> None:
        """Work on these nodes."""
        for node in nodes:
            self._queue.add(node)
        metrics.WAITING.set(len(self._queue))

    def forget_returned(self) -> None:
        """Forget outcomes that the fold has by now."""
        if not self._reached:
            return
        waiting = {intent.intent for node in self._intents.nodes() for intent in self._intents.about(node)}
        self._reached &= waiting

    async def run(self) -> None:
        """Work for ever."""
        while True:
            node = await self._queue.take()
            self._at_rest.clear()
            try:
                await self._work_on(node)
            finally:
                self._queue.done(node)
                metrics.WAITING.set(len(self._queue))
                if not self._queue.active:
                    self._at_rest.set()

    async def record(self) -> None:
        """Have outcomes recorded, for ever: at once where no node is left to work on, else those of a while."""
        while True:
            reached = [await self._to_record.get()]
            with suppress(TimeoutError):
                async with asyncio.timeout(self._tools.settings.outcomes_apart_s):
                    await self._at_rest.wait()
            while not self._to_record.empty():
                reached.append(self._to_record.get_nowait())
            await self._tools.recorder.record_all(reached)
            self._unrecorded -= len(reached)
            for intent, outcome in reached:
                metrics.count(outcome)
                _report(intent, outcome)

    async def _work_on(self, node: str) -> None:
        try:
            while (intent := self._next(node)) is not None:
                await self._settle(intent)
        except KubeError as error:
            self._retry_later(node, error)
        else:
            self._failures.pop(node, None)

    def _next(self, node: str) -> Intent | None:
        return next((one for one in self._intents.about(node) if one.intent not in self._reached), None)

    async def _settle(self, intent: Intent) -> None:
        outcome = self._superseded(intent) or await self._carry_out(intent)
        if isinstance(outcome, NodeIsolationApplied):
            metrics.LATENCY.observe(max(0.0, (self._tools.clock() - intent.recorded_at).total_seconds()))
        self._reached.add(intent.intent)
        self._refusals.pop(intent.intent, None)
        self._unrecorded += 1
        await self._to_record.put((intent, outcome))

    def _superseded(self, intent: Intent) -> NodeIsolationSuperseded | None:
        is_newest, now = self._intents.is_newest(intent), self._tools.clock()
        return superseded(intent, is_newest=is_newest, now=now, max_age=self._tools.settings.max_age)

    async def _carry_out(self, intent: Intent) -> Outcome:
        """Bring the Node to what the intent says; raises what keeps it from that for now."""
        try:
            return await self._write(intent)
        except NotFoundError:
            return NodeIsolationSuperseded(intent=intent.intent, reason="NodeGone")
        except RefusedError as error:
            if not is_refusal(error):
                raise
            refusals = self._refusals[intent.intent] = self._refusals.get(intent.intent, 0) + 1
            if refusals < self._tools.settings.refusals_max:
                raise
            reason = type(error).__name__.removesuffix("Error")
            return NodeIsolationFailed(intent=intent.intent, reason=reason, message=truncated(str(error)))

    async def _write(self, intent: Intent) -> Outcome:
        """Read and write until nobody else is faster, and the Node is as desired.

        Raises:
            KubeError: a request failed, or somebody was faster each time.
        """
        attempts = self._tools.settings.conflicts_max
        for attempt in range(attempts):
            missing = await self._missing(intent, may_be_copy=attempt == 0)
            if missing is None:
                return NodeIsolationSuperseded(intent=intent.intent, reason="NodeGone")
            patch, was = missing
            if patch is None:
                return NodeIsolationApplied(intent=intent.intent, written=False, was=was)
            if (outcome := self._superseded(intent)) is not None:
                return outcome
            try:
                async with self._tools.breaker.request():
                    await self._tools.client.merge_patch(NODES, intent.node, patch)
            except ConflictError:
                if attempt + 1 == attempts:
                    raise
                continue
            return NodeIsolationApplied(intent=intent.intent, written=True, was=was)
        raise AssertionError("the last conflict is raised")

    async def _missing(self, intent: Intent, *, may_be_copy: bool) -> NodePlan | None:
        """What the Node lacks, None where it is gone; of a copy that is not the newest only what is to be written."""
        if may_be_copy:
            found = await self._reads.together(intent.node)
            missing = _plan(found.node, intent)
            if found.is_newest or (missing is not None and missing.patch is not None):
                return missing
        return _plan(await self._reads.alone(intent.node), intent)

    def _retry_later(self, node: str, error: KubeError) -> None:
        metrics.RETRIES.labels(type(error).__name__).inc()
        failures = self._failures[node] = self._failures.get(node, 0) + 1
        pause_s = self._tools.pause_s(error, failures)
        log.warning("nodewriter.failed", node=node, reason=str(error), retry_s=round(pause_s, 3))
        self._queue.add(node, self._queue.now_s() + pause_s)


def _plan(node: Object, intent: Intent) -> NodePlan | None:
    return plan(node, intent.isolation) if node["metadata"]["uid"] == intent.uid else None


def _report(intent: Intent, outcome: Outcome) -> None:
    shown = {"node": intent.node, "intent": intent.intent}
    if isinstance(outcome, NodeIsolationApplied):
        log.info("nodewriter.applied", **shown, written=outcome.written)
    elif isinstance(outcome, NodeIsolationSuperseded) and outcome.reason in ("Newer", "NodeGone"):
        log.info("nodewriter.superseded", **shown, reason=outcome.reason)
    else:
        log.error("nodewriter.not-applied", **shown, reason=outcome.reason, message=outcome.message)
