"""Checks each snapshot against a fold from the one before: whether it is what the log says, row by row."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from gpuledger.events.position import ORIGIN, Position
from gpuledger.ledger.api import Ledger
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots.past import fold_on_from
from gpuledger.projection.fold_snapshots.reader import UNUSABLE, FoldSnapshots, LoadedFold
from gpuledger.projection.fold_snapshots.state import rows_beside
from gpuledger.projection.replay import skipped_positions


class CheckedSnapshot(NamedTuple):
    """The outcome for one snapshot: where it stands, where the fold began that it was compared with, and what differs.

    `problem` says why it cannot be used at all; else `differences` rows differ, of which the first is named.
    """

    projection: str
    at: Position
    since: Position
    rows: int
    differences: int
    first: str | None = None
    problem: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether it is what the log says."""
        return self.problem is None and not self.differences


async def check_snapshots(
    projection: Projection, ledger: Ledger, snapshots: FoldSnapshots
) -> AsyncIterator[CheckedSnapshot]:
    """Compare each snapshot of a projection, in the order of the log, with a fold from the one before it.

    The first one is compared with a fold from the first event, and so is one that follows on an unusable one.

    Raises:
        LedgerError: the log cannot be read.
        ObjectsError: the object store cannot be used.
        ProjectionError: an event stops the fold.
    """
    skipped = await skipped_positions(ledger)
    whole = [name for name, table in projection.new_state().tables().items() if table.spec.retires is not None]
    going: LoadedFold | None = None
    since = ledger.generations.position(ORIGIN)
    for place in reversed(await snapshots.pieces(projection).places()):
        at = ledger.generations.position(place.sequence)
        try:
            loaded = await snapshots.load_at(projection, place, skipped, whole=whole, is_written=True)
        except UNUSABLE as error:
            yield CheckedSnapshot(projection.name, at, since, 0, 0, problem=str(error))
            continue
        if going is None:
            going = snapshots.begin(projection, skipped, is_written=True)
        await fold_on_from(going, ledger, place.sequence)
        yield _compared(projection, at, since, going.fold, loaded.fold)
        going, since = loaded, at


def _compared(projection: Projection, at: Position, since: Position, folded: Fold, stored: Fold) -> CheckedSnapshot:
    expected, found = _rows(folded), _rows(stored)
    different = [
        f"{table}/{key}"
        for table in expected
        for key in {*expected[table], *found[table]}
        if expected[table].get(key) != found[table].get(key)
    ]
    rows = sum(map(len, found.values()))
    return CheckedSnapshot(projection.name, at, since, rows, len(different), min(different, default=None))


def _rows(fold: Fold) -> Mapping[str, Mapping[Any, Any]]:
    """Everything that a fold amounts to, by table and key."""
    tables: dict[str, Mapping[Any, Any]] = {name: dict(table.rows) for name, table in fold.state.tables().items()}
    for name, rows in rows_beside(fold).items():
        tables[name] = dict(enumerate(rows))
    tables["events"] = {"counted": fold.events, "changed": fold.waiting.changed}
    return tables
