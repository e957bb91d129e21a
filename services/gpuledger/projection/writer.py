"""The rows of one projection, in memory and in the database, while this process holds the writer's lock."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from gpuledger.events.publishing import Rule
from gpuledger.ledger.api import Ledger, Message, Outgoing, Position, Receipt
from gpuledger.ledger.errors import EventRefusedError
from gpuledger.ledger.own import publish_own
from gpuledger.projection.continuity import adopted, confirm_checkpoint
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import DecisionRefusedError
from gpuledger.projection.fold import Fold
from gpuledger.projection.replay import skipped_positions
from gpuledger.projection.store import Checkpoint, Decider, ProjectionStore
from gpuledger.runtime.clock import Clock, NewId
from gpuledger.runtime.telemetry import ProjectionMetrics


class WriterContext(NamedTuple):
    """The projection, its ledger and what else a writer needs."""

    projection: Projection
    ledger: Ledger
    clock: Clock
    new_id: NewId
    metrics: ProjectionMetrics
    on_flush: Callable[[Checkpoint], None] | None
    rules: tuple[Rule, ...]


class RowWriter:
    """Takes messages, keeps the rows true, and publishes the decisions.

    Nothing that depends on the present happens before the fold has reached the head that the log had at the start.
    """

    def __init__(
        self,
        context: WriterContext,
        store: ProjectionStore,
        fold: Fold,
        checkpoint: Checkpoint,
        head_at_start: int,
        settle_until: int,
    ) -> None:
        self.checkpoint = checkpoint
        self._context = context
        self._store = store
        self._fold = fold
        self._head_at_start = head_at_start
        self._settle_until = settle_until
        self._settled = False

    @classmethod
    async def load(cls, context: WriterContext, store: ProjectionStore) -> Self:
        """Read the rows back, or begin at the start of the log.

        Raises:
            VersionError: another version of the projection wrote the rows.
            GenerationMismatchError: they follow another generation of the ledger.
            LogChangedError: they follow another ledger, or one that was lost, restored or cut since.
        """
        head, skipped = await context.ledger.head(), await skipped_positions(context.ledger)
        await _begin_if_new(context, store, head)
        await _confirm(context, store)
        async with store.snapshot():
            writer = await cls._load(context, store, head, skipped)
        await writer.publish_decisions()
        return writer

    @classmethod
    async def _load(
        cls, context: WriterContext, store: ProjectionStore, head: int, skipped: Sequence[Position]
    ) -> Self:
        checkpoint = await store.checkpoint()
        assert checkpoint is not None, "what was begun is there; who could drop it waits for the writer's end"
        await store.settle_at(head)
        decider = await store.decider()
        outbox = await store.outbox() if context.projection.decides else []
        fold = await store.load(checkpoint, skipped, outbox)
        fold.decision_bytes_max = context.ledger.message_bytes_max
        return cls(context, store, fold, checkpoint, head, decider.settle_until if decider else 0)

    async def take(self, messages: list[Message]) -> None:
        """Fold the messages (none: only ask what is due), write the changed rows, publish the decisions."""
        metrics, now = self._context.metrics, self._context.clock()
        if messages:
            await self._store.page_in(self._fold, messages)
            with metrics.folding(len(messages)):
                self._fold.apply_all(messages)
        if self._context.projection.decides and self._fold.sequence >= self._head_at_start:
            self._fold.enforce(self._context.rules, now)
            self._fold.due(now)
        if not messages and not self._fold.decided:
            return
        with metrics.flushing():
            await self._flush()
        metrics.committed(self.checkpoint.position, messages[-1] if messages else None, self._context.clock())
        if self._context.on_flush:
            self._context.on_flush(self.checkpoint)
        await self.publish_decisions()

    async def publish_decisions(self) -> None:
        """Publish the decisions that are ready in the outbox; repeating it after a crash repeats the same ids.

        Raises:
            DecisionRefusedError: no attempt will ever succeed.
        """
        if not self._context.projection.decides:
            return
        if not self._settled and self.checkpoint.position >= self._settle_until:
            self._fold.numbering = await self._store.release_held()
            self._settled = True
        ready = await self._store.ready()
        if ready:
            receipts = await self._publish(list(ready.values()))
            sequences = [receipt.sequence for receipt in receipts]
            await self._store.mark_sent(dict(zip(ready, sequences, strict=True)))

    async def _publish(self, ready: Sequence[Outgoing]) -> list[Receipt]:
        try:
            return await publish_own(self._context.ledger, ready)
        except EventRefusedError as error:
            position = Position(self.checkpoint.generation, self.checkpoint.position)
            raise DecisionRefusedError(self._context.projection.name, position, str(error)) from error

    async def _flush(self) -> None:
        status = "ready" if self.checkpoint.position >= self._settle_until else "held"
        self.checkpoint = await self._store.flush(self._fold, self.checkpoint, status=status)


async def _confirm(context: WriterContext, store: ProjectionStore) -> None:
    checkpoint = await store.checkpoint()
    if checkpoint is not None:
        checkpoint = await adopted(store, context.ledger, checkpoint)
        await confirm_checkpoint(context.projection, context.ledger, checkpoint)


async def _begin_if_new(context: WriterContext, store: ProjectionStore, head: int) -> None:
    """Begin a projection that was never built; a rebuild that is about to swap its rows in goes first."""
    async with store.connection.transaction():
        await store.hold_beginning()
        if await store.checkpoint() is not None:
            return
        if context.projection.decides:
            await store.create_decider(Decider(context.new_id(), 1, head))
        await store.create(context.ledger.identity, context.new_id())
