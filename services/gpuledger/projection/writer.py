"""The rows of one projection, in memory and in the database, while this process holds the writer's lock."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from gpuledger.ledger.api import Ledger, Message, Position
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import GenerationMismatchError, VersionError
from gpuledger.projection.fold import Fold
from gpuledger.projection.paging import page_in
from gpuledger.projection.skips import skipped_positions
from gpuledger.projection.store import Checkpoint, Decider, Store
from gpuledger.runtime.clock import Clock, NewId
from gpuledger.runtime.telemetry import ProjectionMetrics


class Surroundings(NamedTuple):
    """What a writer works with."""

    projection: Projection
    ledger: Ledger
    clock: Clock
    new_id: NewId
    metrics: ProjectionMetrics
    on_flush: Callable[[Checkpoint], None] | None


class Writer:
    """Takes messages, keeps the rows true, and publishes what was decided.

    Nothing that depends on the present happens before the fold has reached the head that the log had at the start.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        store: Store,
        fold: Fold,
        checkpoint: Checkpoint,
        head_at_start: int,
        settle_until: int,
    ) -> None:
        self.checkpoint = checkpoint
        self._with = surroundings
        self._store = store
        self._fold = fold
        self._head_at_start = head_at_start
        self._settle_until = settle_until
        self._settled = False

    @classmethod
    async def load(cls, surroundings: Surroundings, store: Store) -> Self:
        """Read the rows back, or begin at the start of the log.

        Raises:
            VersionError: another version of the projection wrote the rows.
            GenerationMismatchError: they follow another generation of the ledger.
        """
        head, skipped = await surroundings.ledger.head(), await skipped_positions(surroundings.ledger)
        await _begin_if_new(surroundings, store, head)
        async with store.snapshot():
            writer = await cls._load(surroundings, store, head, skipped)
        await writer.publish_decisions()
        return writer

    @classmethod
    async def _load(cls, surroundings: Surroundings, store: Store, head: int, skipped: Sequence[Position]) -> Self:
        projection, ledger = surroundings.projection, surroundings.ledger
        checkpoint = await store.checkpoint()
        assert checkpoint is not None, "what was begun is there; who could drop it waits for the writer's end"
        if checkpoint.version != projection.version:
            raise VersionError(projection.name, checkpoint.version, projection.version)
        if checkpoint.generation != ledger.generation:
            raise GenerationMismatchError(projection.name, checkpoint.generation, ledger.generation)
        await store.settle_at(head)
        decider = await store.decider()
        outbox = await store.outbox() if projection.decides else []
        fold = await store.load(checkpoint, skipped, outbox)
        return cls(surroundings, store, fold, checkpoint, head, decider.settle_until if decider else 0)

    async def take(self, messages: list[Message]) -> None:
        """Fold what has arrived (nothing: only ask what is due), write what changed, publish what was decided."""
        metrics, now = self._with.metrics, self._with.clock()
        if messages:
            await page_in(self._store, self._fold, messages)
            with metrics.folding(len(messages)):
                self._fold.apply_all(messages)
        if self._with.projection.decides and self._fold.sequence >= self._head_at_start:
            self._fold.due(now)
        if not messages and not self._fold.decided:
            return
        with metrics.flushing():
            await self._flush()
        metrics.at(self.checkpoint.position, messages[-1] if messages else None, self._with.clock())
        if self._with.on_flush:
            self._with.on_flush(self.checkpoint)
        await self.publish_decisions()

    async def publish_decisions(self) -> None:
        """Publish what the outbox holds ready; repeating it after a crash repeats the same ids."""
        if not self._with.projection.decides:
            return
        if not self._settled and self.checkpoint.position >= self._settle_until:
            self._fold.numbering = await self._store.release_held()
            self._settled = True
        ready = await self._store.ready()
        if ready:
            await self._with.ledger.publish_many(ready)
            await self._store.mark_sent([message.id for message in ready])

    async def _flush(self) -> None:
        status = "ready" if self.checkpoint.position >= self._settle_until else "held"
        self.checkpoint = await self._store.flush(self._fold, self.checkpoint, status=status)


async def _begin_if_new(surroundings: Surroundings, store: Store, head: int) -> None:
    """Begin a projection that was never built; a rebuild that is about to swap its rows in goes first."""
    async with store.connection.transaction():
        await store.hold_beginning()
        if await store.checkpoint() is not None:
            return
        if surroundings.projection.decides:
            await store.create_decider(Decider(surroundings.new_id(), 1, head))
        await store.create(surroundings.ledger.generation, surroundings.new_id())
