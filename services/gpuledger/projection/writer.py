"""The rows of one projection, in memory and in the database, while this process holds the writer's lock."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Self

from gpuledger.domain.sources.leader_epochs import head_after, leader_epoch
from gpuledger.events.envelope import parse
from gpuledger.events.errors import EventError
from gpuledger.events.position import (
    ORIGIN,
    Offset,
    Position,
    is_after,
    is_at_or_after,
    is_same,
    lag,
    latest,
    number_of,
)
from gpuledger.events.publishing import Rule
from gpuledger.events.subjects import source_filter
from gpuledger.ledger.api import Ledger, Message, Outgoing, Receipt
from gpuledger.ledger.atomic import BATCH_MESSAGES_MAX
from gpuledger.ledger.errors import EventRefusedError, LedgerUnavailableError, SequenceConflictError
from gpuledger.ledger.own import OwnEvents, publish_own
from gpuledger.projection.checker import Checked
from gpuledger.projection.checkpoint import Checkpoint
from gpuledger.projection.continuity import adopted, confirm_checkpoint
from gpuledger.projection.definition import Projection
from gpuledger.projection.enforced import EnforcedRules
from gpuledger.projection.errors import AnotherLeaderError, BadEventError, DecisionRefusedError, ProjectionError
from gpuledger.projection.fold import Fold
from gpuledger.projection.history_sweep import HistorySweep
from gpuledger.projection.log_numbers import LogNumbers
from gpuledger.projection.outbox import sent_decisions
from gpuledger.projection.replay import skipped_positions
from gpuledger.projection.returns import Returns
from gpuledger.projection.store import Decider, ProjectionStore
from gpuledger.runtime.clock import Clock, NewId
from gpuledger.runtime.telemetry import ProjectionMetrics

DECISIONS_PER_PUBLISH = BATCH_MESSAGES_MAX
"""One atomic batch."""

IDLE_TICKS_MAX = 5
"""After so many ticks without a message a decider that holds decisions back asks whether the log goes on at all."""


class WriterContext(NamedTuple):
    """The projection, its ledger and what else a writer needs; `numbers` gives those that hold behind a position."""

    projection: Projection
    ledger: Ledger
    clock: Clock
    new_id: NewId
    metrics: ProjectionMetrics
    on_flush: Callable[[Checkpoint], None] | None
    rules: Callable[[], tuple[Rule, ...]]
    numbers: Callable[[Offset], Awaitable[LogNumbers]]


class RowWriter:
    """Takes messages, keeps the rows true, and publishes the decisions.

    Nothing that depends on the present happens before the fold has reached the head that the log had at the start. Up
    to there a decider decides its own past anew; it publishes what is not in the log then, and nothing before.
    """

    def __init__(
        self,
        context: WriterContext,
        store: ProjectionStore,
        fold: Fold,
        checkpoint: Checkpoint,
        head_at_start: Offset,
        settle_until: Offset,
    ) -> None:
        self.checkpoint = checkpoint
        self._context = context
        self._store = store
        self._fold = fold
        self._head_at_start = head_at_start
        self._settle_until = latest([settle_until, head_at_start])
        self._settled = False
        self._own = OwnEvents(context.projection.source, ORIGIN)
        self._idle_ticks = 0
        self._may_have_ready = True
        self._sweep = HistorySweep(store)

    @classmethod
    async def load(cls, context: WriterContext, store: ProjectionStore) -> Self:
        """Read the rows back, or begin at the start of the log.

        Raises:
            VersionError: another version of the projection wrote the rows.
            RuleVersionError: they were folded by a rule that this build does not know.
            GenerationMismatchError: they follow another generation or partition of the ledger.
            LogChangedError: they follow another ledger, or one that was lost, restored or cut since.
        """
        head, skipped = await context.ledger.head(), await skipped_positions(context.ledger)
        await _begin_if_new(context, store, head)
        checkpoint = await _confirmed(context, store)
        with context.ledger.relying_on(checkpoint.anchor):
            async with store.snapshot():
                writer = await cls._load(context, store, head, skipped)
            await writer.publish_decisions()
        return writer

    @classmethod
    async def _load(
        cls, context: WriterContext, store: ProjectionStore, head: Offset, skipped: Sequence[Position]
    ) -> Self:
        checkpoint = await store.checkpoint()
        assert checkpoint is not None, "what was begun is there; who could drop it waits for the writer's end"
        projection, ledger = context.projection, context.ledger
        numbers = await context.numbers(checkpoint.position)
        if not projection.decides:
            fold = await store.load(checkpoint, ledger.generations, numbers, skipped, [])
            return cls(context, store, fold, checkpoint, head, ORIGIN)
        await store.settle_at(head)
        settle_until = await store.begin_epoch(leader_epoch(ledger.generations.position(head), context.new_id()), head)
        fold = await store.load(checkpoint, ledger.generations, numbers, skipped, await store.outbox())
        fold.begin(ledger.identity)
        fold.decision_bytes_max = ledger.message_bytes_max
        sent = {
            one.id: head if one.sequence is None else one.sequence
            for one in await sent_decisions(store.connection, projection.name)
        }
        fold.returns = Returns(
            projection.name, ledger.generations, head=head, settled=settle_until, sent=sent, skipped=skipped
        )
        return cls(context, store, fold, checkpoint, head, settle_until)

    async def take(self, batch: Sequence[Checked]) -> None:
        """Fold the messages (none: only ask what is due), write the changed rows, publish the decisions.

        Then a few of the rows are deleted that ended before a history begins.

        Raises:
            ProjectionError: the projection has to stop.
            LedgerUnavailableError: the ledger shows less than it has acknowledged.
        """
        metrics, now = self._context.metrics, self._context.clock()
        if batch:
            with metrics.folding(len(batch)):
                await self._store.fold(self._fold, batch)
        await self._check_returns(idle=not batch)
        await self._check_head(idle=not batch)
        if self._context.projection.decides and is_at_or_after(self._fold.sequence, self._head_at_start):
            self._fold.enforce(self._context.rules(), now)
            self._fold.due(now)
        if batch or self._fold.decided:
            await self._commit(batch)
        await self._sweep.step(self._fold.state, self.checkpoint)

    async def _commit(self, batch: Sequence[Checked]) -> None:
        """Write what changed, and publish what was decided."""
        metrics = self._context.metrics
        self._may_have_ready = self._may_have_ready or bool(self._fold.decided)
        with metrics.flushing():
            await self._flush()
        metrics.committed(
            number_of(self.checkpoint.position), batch[-1].message if batch else None, self._context.clock()
        )
        if self._context.on_flush:
            self._context.on_flush(self.checkpoint)
        await self.publish_decisions()

    def check(self, messages: Sequence[Message]) -> list[Checked]:
        """Check messages that nobody else has checked."""
        return self._fold.check_all(messages)

    @property
    def enforced(self) -> EnforcedRules:
        """The rules that are enforced where the rows are."""
        return self._fold.enforced

    @property
    def behind_at_start(self) -> int:
        """How many events there were behind the rows when they were loaded."""
        return lag(self.checkpoint.position, self._head_at_start)

    async def confirm(self) -> int:
        """The number of the session that says that the rows are as this writer left them.

        Where nothing arrives, nothing else would show it.

        Raises:
            WriterFencedError: somebody else wrote or swapped them.
        """
        return await self._store.session_of(self.checkpoint)

    async def publish_decisions(self) -> None:
        """Publish the decisions that are ready in the outbox; repeating it after a crash repeats the same ids.

        Only this writer puts any there, or whoever swaps the rows, which fences it: so it asks only behind a decision.

        Raises:
            DecisionRefusedError: no attempt will ever succeed.
            WriterFencedError: the rows are not as this writer left them; it publishes for nobody any more.
            AnotherLeaderError: another process has recorded decisions that these do not follow from.
        """
        if not self._context.projection.decides:
            return
        if not self._settled:
            if not is_at_or_after(self.checkpoint.position, self._settle_until):
                return
            self._own = await self._own_events()
            await self._publish_ready()
            await self._follow_last_leader()
            self._fold.renumber(*await self._store.release_held(self.checkpoint))
            self._settled = self._may_have_ready = True
        if self._may_have_ready:
            await self._publish_ready()
            self._may_have_ready = False

    async def _follow_last_leader(self) -> None:
        """Begin another epoch, if the last leader in the log would close the one that was begun.

        That may have found this same head, and what it had ready has been published just now, behind that head.
        """
        head = self._position(self._head_at_start)
        recorded = self._position(latest([self._head_at_start, self._own.expected.sequence]))
        following = head_after(self._fold.seen.last_leader(self._context.projection.source), recorded)
        if following.is_after(head):
            await self._store.begin_epoch(leader_epoch(following, self._context.new_id()), self._head_at_start)

    async def _own_events(self) -> OwnEvents:
        """What the log has of this decider by now, all of which has to be folded.

        What a leader before this one had on its way may arrive only now, and is in the outbox still.
        """
        source = self._context.projection.source
        own = OwnEvents(source, await self._context.ledger.last_sequence(source_filter(source)))
        if is_after(own.expected.sequence, self.checkpoint.position):
            ready = await self._store.ready(self.checkpoint)
            raise await self._unexpected(own.expected.sequence, list(ready.values()))
        return own

    async def _conflict(self, refused: Sequence[Outgoing]) -> ProjectionError | LedgerUnavailableError:
        """Why the server did not record these behind our last event.

        One that was folded since changed no row, as what a leader without this condition had on its way.
        """
        subject_filter, ours = self._own.expected
        last = await self._context.ledger.last_sequence(subject_filter)
        if is_after(last, latest([ours, self.checkpoint.position])):
            return await self._unexpected(last, refused)
        return LedgerUnavailableError(
            f"NATS did not record decisions behind {number_of(ours):,}, and its last one is at {number_of(last):,}. "
            "They are published again."
        )

    async def _unexpected(self, sequence: Offset, ours: Sequence[Outgoing]) -> ProjectionError | LedgerUnavailableError:
        """The error for an own event that was not there when this leader decided."""
        name, at = self._context.projection.name, self._position(sequence)
        found = await self._context.ledger.message_at(sequence)
        if found is None or found.data in [one.data for one in ours]:
            return LedgerUnavailableError(f"NATS has recorded decisions up to {at}, and did not acknowledge them.")
        try:
            event = parse(found.data)
        except EventError as error:
            return BadEventError(name, at, found.subject, str(error))
        return AnotherLeaderError(name, at, event.id, event.epoch)

    def _position(self, sequence: Offset) -> Position:
        return self._context.ledger.generations.position(sequence)

    async def _publish_ready(self) -> None:
        """Publish piece by piece: what was sent is marked as that, so that whoever begins again does so behind it."""
        assert self._fold.returns is not None, "what decides has its decisions checked"
        ready = list((await self._store.ready(self.checkpoint)).items())
        for start in range(0, len(ready), DECISIONS_PER_PUBLISH):
            piece = dict(ready[start : start + DECISIONS_PER_PUBLISH])
            receipts = await self._publish(list(piece.values()))
            sequences = {event_id: receipt.sequence for event_id, receipt in zip(piece, receipts, strict=True)}
            await self._store.mark_sent(sequences)
            self._fold.returns.sent(sequences)

    async def _check_returns(self, *, idle: bool) -> None:
        """Check that what was recorded comes back; where nothing arrives for long, whether it is in the log at all."""
        returns = self._fold.returns
        if returns is None:
            return
        if not idle:
            returns.check(self._fold.sequence)
        elif (sequence := returns.overdue()) is not None:
            if await self._context.ledger.message_at(sequence) is None:
                raise returns.lost(sequence, "the log has no event there. Check whether it was restored from a back-up")
            raise LedgerUnavailableError(
                f"The ledger has position {self._position(sequence)} and shows it only up to "
                f"{self._fold.sequence}. Check the replicas of its stream."
            )

    async def _check_head(self, *, idle: bool) -> None:
        """Wait for no position that the log has lost: one that was restored meanwhile may end before `settle_until`.

        Raises:
            LedgerUnavailableError: it ends before the head that this leader found, and names its epoch by. The epoch
                of every leader to come would be an earlier one.
        """
        self._idle_ticks = self._idle_ticks + 1 if idle else 0
        if self._settled or not self._context.projection.decides or self._idle_ticks < IDLE_TICKS_MAX:
            return
        head = await self._context.ledger.head()
        if is_after(self._head_at_start, head):
            raise LedgerUnavailableError(
                f"The log ends at {number_of(head):,}, and ended at {number_of(self._head_at_start):,} when this "
                "process began to lead. An older copy was put back; it begins anew."
            )
        if is_same(self.checkpoint.position, head) and is_after(self._settle_until, head):
            self._settle_until = head
            await self.publish_decisions()

    async def _publish(self, ready: Sequence[Outgoing]) -> list[Receipt]:
        try:
            return await publish_own(self._context.ledger, ready, own=self._own)
        except EventRefusedError as error:
            raise DecisionRefusedError(self._context.projection.name, self.checkpoint.at, str(error)) from error
        except SequenceConflictError as error:
            raise await self._conflict(ready) from error

    async def _flush(self) -> None:
        status = "ready" if self._settled else "held"
        self.checkpoint = await self._store.flush(self._fold, self.checkpoint, status=status)


async def _confirmed(context: WriterContext, store: ProjectionStore) -> Checkpoint:
    """The checkpoint, once the log is found to be the one that it follows."""
    checkpoint = await store.checkpoint()
    assert checkpoint is not None, "what was begun is there"
    checkpoint = await adopted(store, context.ledger, checkpoint)
    await confirm_checkpoint(context.projection, context.ledger, checkpoint)
    if checkpoint.version != context.projection.version:
        await context.numbers(checkpoint.position)  # takes over those that the older build kept with these rows
        checkpoint = await store.adopt_version(checkpoint)
    return checkpoint


async def _begin_if_new(context: WriterContext, store: ProjectionStore, head: Offset) -> None:
    """Begin a projection that was never built; a rebuild that is about to swap its rows in goes first."""
    async with store.connection.transaction():
        await store.hold_beginning()
        if await store.checkpoint() is not None:
            return
        if context.projection.decides:
            await store.create_decider(Decider(context.new_id(), 1, head))
        await store.create(context.ledger.identity, context.new_id())
    await store.drop_any_month()
