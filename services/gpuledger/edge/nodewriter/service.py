"""The `nodewriter` service: cordons, taints and labels Nodes as the decider of maintenance says, and gives them back.

It also has pods leave the nodes that are drained.

One instance is the leader and writes; the others wait for its lock. The leader writes only to the cluster that belongs
to its ledger, while the rows in the database follow the log, and folds the ledger to its head before its first write,
because history never acts.

It does not watch Nodes. Who uncordons one by hand has the last word until somebody asks again: a person with the right
to do that is no drift to correct, and the request stays listed.
"""

import asyncio
from functools import partial
from typing import Final, NamedTuple

from gpuledger.db.engine import DATABASE_TRANSIENT
from gpuledger.db.locks import NODEWRITER_LOCK
from gpuledger.edge.kube.circuit_breaker import CircuitBreaker, RateLimiter
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.kube.work_queue import WorkQueue
from gpuledger.edge.leadership import Election, OwnedCluster, RestartPolicy, Restarts
from gpuledger.edge.nodewriter import metrics
from gpuledger.edge.nodewriter.drainer import Drainer
from gpuledger.edge.nodewriter.executor import Executor, Tools
from gpuledger.edge.nodewriter.intents import Intents, IntentsProjection
from gpuledger.edge.nodewriter.settings import NodeWriterSettings
from gpuledger.edge.outcomes import OutcomeRecorder
from gpuledger.events.position import ORIGIN, Offset
from gpuledger.events.publishing import SourceKind
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import LedgerUnavailableError, LogChangedError, PublishError
from gpuledger.projection.errors import ProjectionError
from gpuledger.projection.fold import Fold
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.kept_fold import KeptFold
from gpuledger.runtime.backoff import Jitter, system_jitter
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.runtime.tasks import run_until_one_fails

TRANSIENT: Final = (LedgerUnavailableError, LogChangedError, PublishError, KubeError, *DATABASE_TRANSIENT)
"""Errors after which the node writer starts anew."""


class NodeWriterHealth(NamedTuple):
    """`state` is standing-by, log-changed, folding, writing or stopped; `reason` is what keeps it from writing.

    `waiting` counts nodes that are queued or being worked on, `failing` those of them that are tried again later,
    `draining` nodes with a drain that is not over.
    """

    state: str
    position: Offset
    waiting: int
    failing: int
    reason: str | None
    draining: int = 0


class NodeWriter:
    """Waits for leadership and writes while it lasts, recovering from servers that go away."""

    def __init__(
        self,
        ledger: Ledger,
        database_url: str,
        client: KubeClient,
        followed: FollowedLog,
        *,
        settings: NodeWriterSettings | None = None,
        clock: Clock = system_clock,
        jitter: Jitter = system_jitter,
        cluster: str | None = None,
    ) -> None:
        self._ledger = ledger
        self._database_url = database_url
        self._client = client
        self._followed = followed
        self._settings = settings or NodeWriterSettings()
        self._clock = clock
        self._jitter = jitter
        self._owned = OwnedCluster(SourceKind.NODEWRITER, client, ledger.identity.ledger_id, cluster or client.url)
        self._leader: _Leader | None = None
        bounds = self._settings
        policy = RestartPolicy(bounds.restart_backoff, bounds.stopped_retry_s, TRANSIENT, (ProjectionError,))
        self._restarts = Restarts(SourceKind.NODEWRITER, policy, jitter)

    def health(self) -> NodeWriterHealth:
        """The present state."""
        reason = self._followed.problem or self._restarts.problem
        if self._followed.problem is None and self._leader is not None:
            return self._leader.health(reason)
        state = "log-changed" if self._followed.problem else "stopped" if self._restarts.is_stopped else "standing-by"
        return NodeWriterHealth(state, ORIGIN, 0, 0, reason)

    async def run(self) -> None:
        """Run until cancelled.

        An event that does not fold stops the writing: it is logged, and folded again after a while, because an operator
        may skip that position.
        """
        settings = self._settings
        election = Election(SourceKind.NODEWRITER, self._database_url, NODEWRITER_LOCK, settings.lock_check)
        await self._restarts.run(partial(election.lead, self._followed, self._lead), self._ended)

    def _ended(self) -> None:
        self._leader = None
        metrics.ACTIVE.set(0)

    async def _lead(self) -> None:
        await self._owned.confirm()
        kept = KeptFold(IntentsProjection(), self._ledger, self._database_url, self._settings.snapshots)
        self._leader = _Leader(self._ledger, kept, self._settings, self._tools(), self._restarts)
        keep = self._owned.keep(self._settings.ownership_check_s)
        await run_until_one_fails([self._fold_and_write(self._leader), kept.run(), keep])

    async def _fold_and_write(self, leader: "_Leader") -> None:
        await leader.fold_to_head()
        self._restarts.recovered()
        metrics.ACTIVE.set(1)
        await leader.run()

    def _tools(self) -> Tools:
        settings, now = self._settings, asyncio.get_running_loop().time
        limiter = RateLimiter(settings.requests_per_s, settings.requests_burst, now)
        breaker = CircuitBreaker(limiter, settings.backoff, self._jitter, now)
        recorder = OutcomeRecorder(SourceKind.NODEWRITER, self._ledger, settings.backoff, self._clock, self._jitter)
        return Tools(self._client, breaker, recorder, settings, self._clock, self._jitter)


class _Leader:
    """Folds and writes from getting the lock to losing it."""

    def __init__(
        self, ledger: Ledger, kept: KeptFold, settings: NodeWriterSettings, tools: Tools, restarts: Restarts
    ) -> None:
        self._ledger = ledger
        self._kept = kept
        self._settings = settings
        self._restarts = restarts
        self._intents = Intents()
        self._fold = Fold(IntentsProjection(), ledger.generations, state=self._intents)
        self._queue = WorkQueue[str](asyncio.get_running_loop().time)
        self._executor = Executor(self._intents, self._queue, tools)
        self._drainer = Drainer(self._intents, WorkQueue[str](asyncio.get_running_loop().time), tools)
        self._is_folded = False

    def health(self, reason: str | None) -> NodeWriterHealth:
        """The present state."""
        state = "writing" if self._is_folded else "folding"
        draining = len(self._intents.drained_nodes())
        return NodeWriterHealth(state, self._fold.sequence, len(self._queue), self._executor.failing, reason, draining)

    async def fold_to_head(self) -> None:
        """Fold what came since the last snapshot, up to the head, before anything is written."""
        self._fold = await self._kept.load(self._intents)
        with seldom_collected():
            async for messages in self._ledger.history(after=self._fold.sequence, until=await self._ledger.head()):
                self._fold.apply_all(messages)
                self._kept.folded(self._fold)
        self._intents.take_touched()
        self._intents.take_touched_drains()
        self._executor.enqueue(self._intents.nodes())
        self._drainer.enqueue(self._intents.drained_nodes())
        self._is_folded = True

    async def run(self) -> None:
        """Follow the ledger and write, until something fails."""
        workers = [self._executor.run() for _ in range(self._settings.nodes_at_once_max)]
        drainers = [self._drainer.run() for _ in range(self._settings.drains_at_once_max)]
        await run_until_one_fails([self._follow(), *workers, *drainers])

    async def _follow(self) -> None:
        async with self._ledger.read(self._fold.sequence, anchor=self._kept.anchor(self._fold)) as reader:
            self._restarts.followed()
            while True:
                self._apply(await reader.next_batch(self._settings.messages_per_batch))

    def _apply(self, messages: list[Message]) -> None:
        self._fold.apply_all(messages)
        self._kept.folded(self._fold)
        self._executor.forget_returned()
        self._executor.enqueue(self._intents.take_touched())
        self._drainer.forget_returned()
        self._drainer.enqueue(self._intents.take_touched_drains())
