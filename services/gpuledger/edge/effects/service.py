"""A service that carries intents of the ledger out in a cluster, and records the outcome of each.

One instance is the leader and writes; the others wait for its lock. The leader writes only to the cluster that belongs
to its ledger, while the rows in the database follow the log, and folds the ledger to its head before its first write,
because history never acts.
"""

import asyncio
from abc import ABC, abstractmethod
from functools import partial
from typing import ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from prometheus_client import Gauge

from gpuledger.db.engine import DATABASE_TRANSIENT
from gpuledger.domain.fact import State
from gpuledger.edge.effects.tools import EffectTools, SettingsT
from gpuledger.edge.kube.circuit_breaker import CircuitBreaker, RateLimiter
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.leadership import Election, OwnedCluster, RestartPolicy, Restarts
from gpuledger.edge.outcomes import OutcomeRecorder
from gpuledger.events.position import ORIGIN, Offset
from gpuledger.events.publishing import SourceKind
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import LedgerUnavailableError, LogChangedError, PublishError
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import ProjectionError
from gpuledger.projection.fold import Fold
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.kept_fold import KeptFold
from gpuledger.runtime.backoff import Jitter, system_jitter
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.runtime.tasks import Work, run_until_one_fails

TRANSIENT: Final = (LedgerUnavailableError, LogChangedError, PublishError, KubeError, *DATABASE_TRANSIENT)
"""Errors after which a service starts anew."""


class Effects(Protocol):
    """Executors of the intents of a state, from getting the lock to losing it."""

    @property
    def state(self) -> State:
        """The intents without an outcome; empty at first, and folded by the leader."""

    def resume(self) -> None:
        """Queue all intents: the state is folded to the head of the log."""

    def advance(self) -> None:
        """Queue the intents about which something was recorded since the last call."""

    def work(self) -> list[Work]:
        """The workers, which run side by side until one fails."""


EffectsT = TypeVar("EffectsT", bound=Effects)


class Standing(NamedTuple, Generic[EffectsT]):
    """How a service stands. `effects` are those of the leader, None on standby.

    `state` is standing-by, log-changed, folding, writing or stopped; `reason` is what keeps it from writing.
    """

    state: str
    position: Offset
    reason: str | None
    effects: EffectsT | None


class EffectService(ABC, Generic[SettingsT, EffectsT]):
    """Waits for leadership and writes while it lasts, recovering from servers that go away.

    A subclass names its source of events, its lock, the fold of its intents, and the gauge that is 1 while it writes.
    """

    source: ClassVar[SourceKind]
    lock: ClassVar[str]
    projection: ClassVar[type[Projection]]
    active: ClassVar[Gauge]

    def __init__(
        self,
        ledger: Ledger,
        database_url: str,
        client: KubeClient,
        followed: FollowedLog,
        *,
        settings: SettingsT,
        clock: Clock = system_clock,
        jitter: Jitter = system_jitter,
        cluster: str | None = None,
    ) -> None:
        self._ledger = ledger
        self._database_url = database_url
        self._client = client
        self._followed = followed
        self._settings = settings
        self._clock = clock
        self._jitter = jitter
        self._owned = OwnedCluster(self.source, client, ledger.identity.ledger_id, cluster or client.url)
        self._leader: _Leader[EffectsT] | None = None
        policy = RestartPolicy(settings.restart_backoff, settings.stopped_retry_s, TRANSIENT, (ProjectionError,))
        self._restarts = Restarts(self.source, policy, jitter)

    @abstractmethod
    def new_effects(self, tools: EffectTools[SettingsT]) -> EffectsT:
        """The executors of a leader that has just got the lock."""

    def standing(self) -> Standing[EffectsT]:
        """How it stands now."""
        reason, leader = self._followed.problem or self._restarts.problem, self._leader
        if self._followed.problem is None and leader is not None:
            return Standing("writing" if leader.is_folded else "folding", leader.position, reason, leader.effects)
        state = "log-changed" if self._followed.problem else "stopped" if self._restarts.is_stopped else "standing-by"
        return Standing(state, ORIGIN, reason, None)

    async def run(self) -> None:
        """Run until cancelled.

        An event that does not fold stops the writing: it is logged, and folded again after a while, because an operator
        may skip that position.
        """
        election = Election(self.source, self._database_url, self.lock, self._settings.lock_check)
        await self._restarts.run(partial(election.lead, self._followed, self._lead), self._ended)

    def _ended(self) -> None:
        self._leader = None
        self.active.set(0)

    async def _lead(self) -> None:
        await self._owned.confirm()
        settings, effects = self._settings, self.new_effects(self._tools())
        kept = KeptFold(self.projection(), self._ledger, self._database_url, settings.snapshots)
        fold = Fold(self.projection(), self._ledger.generations, state=effects.state)
        self._leader = leader = _Leader(self._ledger, kept, fold, effects, settings.messages_per_batch)
        keep = self._owned.keep(settings.ownership_check_s)
        await run_until_one_fails([self._fold_and_write(leader), kept.run(), keep])

    async def _fold_and_write(self, leader: "_Leader[EffectsT]") -> None:
        await leader.fold_to_head()
        self._restarts.recovered()
        self.active.set(1)
        await run_until_one_fails([leader.follow(self._restarts), *leader.effects.work()])

    def _tools(self) -> EffectTools[SettingsT]:
        settings, now = self._settings, asyncio.get_running_loop().time
        limiter = RateLimiter(settings.requests_per_s, settings.requests_burst, now)
        breaker = CircuitBreaker(limiter, settings.backoff, self._jitter, now)
        recorder = OutcomeRecorder(self.source, self._ledger, settings.backoff, self._clock, self._jitter)
        return EffectTools(self._client, breaker, recorder, settings, self._clock, self._jitter)


class _Leader(Generic[EffectsT]):
    """Folds from getting the lock to losing it; `is_folded` once it came to the head, from where on effects work."""

    def __init__(self, ledger: Ledger, kept: KeptFold, fold: Fold, effects: EffectsT, messages_per_batch: int) -> None:
        self._ledger = ledger
        self._kept = kept
        self._fold = fold
        self._messages_per_batch = messages_per_batch
        self.effects = effects
        self.is_folded = False

    @property
    def position(self) -> Offset:
        """Up to where it has folded."""
        return self._fold.sequence

    async def fold_to_head(self) -> None:
        """Fold what came since the last snapshot, up to the head, before anything is written."""
        self._fold = await self._kept.load(self.effects.state)
        with seldom_collected():
            async for messages in self._ledger.history(after=self._fold.sequence, until=await self._ledger.head()):
                self._apply(messages)
        self.effects.resume()
        self.is_folded = True

    async def follow(self, restarts: Restarts) -> None:
        """Fold what is recorded from now on, until something fails."""
        async with self._ledger.read(self._fold.sequence, anchor=self._kept.anchor(self._fold)) as reader:
            restarts.followed()
            while True:
                self._apply(await reader.next_batch(self._messages_per_batch))
                self.effects.advance()

    def _apply(self, messages: list[Message]) -> None:
        self._fold.apply_all(messages)
        self._kept.folded(self._fold)
