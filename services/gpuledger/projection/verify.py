"""Proof that the tables are what the log says: a fold from the start, compared with PostgreSQL row by row.

The log is folded outside any transaction, because a snapshot that lasts stops vacuum in the whole database. Only the
comparison has one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpuledger.db.engine import connect
from gpuledger.domain.table import Key, Table
from gpuledger.events.position import Offset, Position, is_at_or_after, lag, latest
from gpuledger.ledger.api import MESSAGES_PER_BATCH_MAX, Ledger
from gpuledger.projection.checkpoint import LIVE, Checkpoint, schema_of
from gpuledger.projection.continuity import confirm_checkpoint
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import NotBuiltError, WriterFencedError
from gpuledger.projection.fold import Fold
from gpuledger.projection.log_numbers import LogNumbers
from gpuledger.projection.outbox import SentDecision, sent_decisions
from gpuledger.projection.outstanding import NOTHING_CHANGED, ChangedDecisions
from gpuledger.projection.replay import OnProgress, fold_on, memory_fold, skipped_positions
from gpuledger.projection.rows import RowStore
from gpuledger.projection.shared_numbers import holds, read_on, stored_numbers
from gpuledger.projection.store import ProjectionStore

SWAPS_MAX = 3
"""How often verifying begins again because the rows were swapped under it."""

CATCH_UP_ROUNDS_MAX = 20
"""How often the fold follows rows that moved on meanwhile, before it follows them within the snapshot."""

FOLDED_IN_SNAPSHOT_MAX = MESSAGES_PER_BATCH_MAX
"""How many events are left for the snapshot: so few are folded in less time than another round takes."""


SNAPSHOT = "snapshot "
"""How the name of a verification of a snapshot begins."""

NUMBERS = "numbers_seen"
"""Stands for the table of the numbers seen, which all projections share."""

OUTBOX = "outbox"
"""Stands for a table where a decision is lost."""


class Difference(NamedTuple):
    """One row that differs. `expected` is what the log says, `found` what PostgreSQL holds; None: no such row."""

    table: str
    key: tuple[Any, ...]
    expected: tuple[Any, ...] | None
    found: tuple[Any, ...] | None


class Verification(NamedTuple):
    """The outcome: up to where, how many rows were compared, how many differ and the first that does.

    Of `changed_decisions` the rows have what this build makes of the facts, and the log what another version made.
    """

    projection: str
    position: Position
    rows: int
    differences: int
    first: Difference | None
    changed_decisions: ChangedDecisions = NOTHING_CHANGED


async def verify(
    projection: Projection, ledger: Ledger, database_url: str, on_progress: OnProgress | None = None
) -> Verification:
    """Compare a projection's rows with a fold of the log up to their checkpoint.

    The fold follows the checkpoint until it has almost met it. Rows, checkpoint and outbox are then read in one
    snapshot, so a projection that runs meanwhile does not disturb. A rebuild's new tables are empty to an older
    snapshot, so differences count only where nothing was swapped meanwhile.

    Raises:
        ProjectionError: there are no rows, or they are of another version or generation.
        LogChangedError: the rows follow another ledger, or one that was lost, restored or cut since.
    """
    async with connect(database_url, application_name=f"gpuledger verify {projection.name}") as connection:
        store = ProjectionStore(connection, projection)
        for _ in range(SWAPS_MAX):
            found = await _verify(store, ledger, on_progress)
            if found is None:
                continue
            outcome, incarnation = found
            now = await store.checkpoint()
            if not outcome.differences or now is None or now.incarnation == incarnation:
                return outcome
        raise WriterFencedError(
            f"The rows of projection {projection.name} were rebuilt again and again meanwhile. Verify again."
        )


async def _verify(
    store: ProjectionStore, ledger: Ledger, on_progress: OnProgress | None
) -> tuple[Verification, str] | None:
    """The outcome and the incarnation that was compared; None where older rows took the place of those there were."""
    projection = store.projection
    checkpoint = await _checked(projection, ledger, await store.checkpoint())
    numbers = LogNumbers()
    fold = await memory_fold(projection, ledger, numbers)
    for _ in range(CATCH_UP_ROUNDS_MAX):
        await fold_on(fold, ledger, checkpoint.position, on_progress)
        checkpoint = await _checked(projection, ledger, await store.checkpoint())
        if lag(fold.sequence, checkpoint.position) <= FOLDED_IN_SNAPSHOT_MAX:
            break
    async with store.snapshot():
        checkpoint = await _checked(projection, ledger, await store.checkpoint())
        if not is_at_or_after(checkpoint.position, fold.sequence):
            return None
        await fold_on(fold, ledger, checkpoint.position)
        fold.adopt(await store.outbox() if projection.decides else [])
        outcome = await _compare(store, fold, checkpoint.at)
        sent = await sent_decisions(store.connection, projection.name) if projection.decides else []
        stored = await stored_numbers(store.connection, ledger.identity)
    more = await _lost(sent, ledger, checkpoint) + await _compare_numbers(numbers, stored, ledger)
    outcome = outcome._replace(
        differences=outcome.differences + len(more), first=outcome.first or next(iter(more), None)
    )
    return outcome, checkpoint.incarnation


async def _compare_numbers(numbers: LogNumbers, stored: LogNumbers | None, ledger: Ledger) -> list[Difference]:
    """What differs in the numbers seen that are stored, once those that are behind have been brought forward."""
    if stored is None or not await holds(ledger, stored.anchor):
        return []  # whoever projects next begins them anew
    for one in (numbers, stored):
        await read_on(one, ledger, latest([numbers.position, stored.position]))
    complete_from = latest([numbers.complete_from, stored.complete_from])
    expected, found = _as_rows(numbers, complete_from), _as_rows(stored, complete_from)
    return [
        Difference(NUMBERS, key, expected.get(key), found.get(key))
        for key in {**expected, **found}
        if expected.get(key) != found.get(key)
    ]


def _as_rows(numbers: LogNumbers, complete_from: Offset) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    seen: dict[tuple[Any, ...], tuple[Any, ...]] = {
        key: (one.last, one.holes) for key, one in numbers.seen.numbers.items()
    }
    return seen | {(at,): (reason,) for at, reason in numbers.refused_behind(complete_from).items()}


async def _lost(sent: Sequence[SentDecision], ledger: Ledger, checkpoint: Checkpoint) -> list[Difference]:
    """Decisions in the outbox that the ledger acknowledged, and that should have come back up to the checkpoint.

    Either the log has something else in their place, or every reader passes over them as repeats.
    """
    skipped = await skipped_positions(ledger) if sent else []
    lost = []
    for decision in sent:
        sequence = decision.sequence
        if sequence is None:
            sequence = await _sequence_of(decision, ledger)
        is_back = sequence is not None and is_at_or_after(checkpoint.position, sequence)
        if sequence is None or (is_back and ledger.generations.position(sequence) not in skipped):
            lost.append(Difference(OUTBOX, (decision.id,), None, (decision.subject, sequence)))
    return lost


async def _sequence_of(decision: SentDecision, ledger: Ledger) -> Offset | None:
    async for messages in ledger.history(subject_filter=decision.subject):
        for message in messages:
            if message.data == decision.data:
                return message.sequence
    return None


async def _checked(projection: Projection, ledger: Ledger, checkpoint: Checkpoint | None) -> Checkpoint:
    if checkpoint is None:
        raise NotBuiltError(projection.name)
    await confirm_checkpoint(projection, ledger, checkpoint)
    return checkpoint


async def _compare(store: ProjectionStore, fold: Fold, position: Position) -> Verification:
    rows, differences = 0, 0
    first: Difference | None = None
    for name, table in fold.state.tables().items():
        found_here = await _compare_table(store, name, table)
        rows += len(table.rows)
        differences += len(found_here)
        if first is None and found_here:
            first = min(found_here, key=lambda difference: tuple(map(str, difference.key)))
    return Verification(fold.projection.name, position, rows, differences, first, fold.waiting.changed)


async def _compare_table(store: ProjectionStore, name: str, table: Table[Any]) -> list[Difference]:
    differences: list[Difference] = []
    left: dict[Key, Any] = dict(table.rows)
    async for rows in RowStore(table.spec, schema_of(LIVE)).all(store.connection):
        for row in rows:
            if table.is_dropped(row):
                continue  # it is about to be deleted
            key = table.key_of(row)
            expected = left.pop(key, None)
            if expected != row:
                differences.append(Difference(name, _as_tuple(key), expected, row))
    differences.extend(Difference(name, _as_tuple(key), expected, None) for key, expected in left.items())
    return differences


def _as_tuple(key: Key) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)
