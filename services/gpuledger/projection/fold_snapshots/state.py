"""A fold as rows of its snapshot, and back. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpuledger.domain.table import TableSpec
from gpuledger.events.envelope import decode, encode
from gpuledger.events.position import Generations, Position
from gpuledger.projection.definition import NOT_PUBLISHED, Projection
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots.manifest import SnapshotManifest
from gpuledger.projection.snapshot import ENFORCED, SEEN, Row, seen_of, seen_rows

RowsOf = Callable[[], Iterable[Row]]
"""Makes the rows of one table."""


class OutstandingDecision(NamedTuple):
    """A decision that the fold has made and the log does not have yet; without `data` the log skips it."""

    number: int
    id: str
    data: str | None


OUTSTANDING: Final = TableSpec("outstanding", OutstandingDecision, ("number",))

BESIDE: Final[tuple[TableSpec[Any], ...]] = (SEEN, ENFORCED, OUTSTANDING)
"""What a snapshot has beside the tables of the state: in an order of its own, and not in buckets."""


def rows_beside(fold: Fold) -> dict[str, Sequence[Row]]:
    """The rows of `BESIDE`; of a fold that keeps its decisions."""
    waiting = [(one.id, encode(one).decode()) for one in fold.outstanding()]
    skipped = [(one, None) for one in fold.waiting.skipped]
    return {
        SEEN.name: seen_rows(fold.seen),
        ENFORCED.name: sorted(fold.enforced.rules.values()),
        OUTSTANDING.name: [OutstandingDecision(number, *one) for number, one in enumerate([*waiting, *skipped])],
    }


def restored(
    projection: Projection,
    manifest: SnapshotManifest,
    generations: Generations,
    rows: Mapping[str, RowsOf],
    skipped: Iterable[Position],
    *,
    is_written: bool,
) -> Fold:
    """The fold as it stood, of the rows of its tables and of `BESIDE`.

    Where it `is_written`, retired rows leave memory whenever its changes are taken, and decisions are kept. Elsewhere
    the rows of a table are made once the fold, or whoever asks, needs any of them.

    Raises:
        EventError: a decision does not decode.
    """
    state = projection.new_state()
    for name, table in state.tables().items():
        if is_written:
            table.load(rows[name]())
        else:
            table.never_written()
            table.load_lazily(rows[name])
    decisions = [OutstandingDecision(*row) for row in rows[OUTSTANDING.name]()]
    fold = Fold(
        projection,
        generations,
        state=state,
        seen=seen_of(rows[SEEN.name]()),
        expected=[decode(one.data.encode()) for one in decisions if one.data is not None],
        skipped=skipped,
        numbering=NOT_PUBLISHED._replace(next_number=manifest.next_number),
        sequence=manifest.anchor.sequence,
        publishes=is_written,
        enforced=EnforcedRules(EnforcedRule(*row) for row in rows[ENFORCED.name]()),
    )
    fold.events = manifest.events
    fold.waiting.restore([one.id for one in decisions if one.data is None], manifest.changed)
    return fold


def kept_in_pieces(projection: Projection) -> Mapping[str, TableSpec[Any]]:
    """The specs of all tables of a snapshot, by name."""
    tables = {name: table.spec for name, table in projection.new_state().tables().items()}
    return tables | {spec.name: spec for spec in BESIDE}
