"""The state of a fold at a position of the log, as rows that outlive the process. Pure.

A service that folds into memory and writes no rows of its own would begin at the first event at every start. A snapshot
is a function of the log up to its position, and of nothing else: whoever loads it and folds on has the state that a
fold from the start of the log has. It names ledger and position as a checkpoint does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.domain.fact import State
from gpuledger.domain.sources.deduplication import Numbers, Seen
from gpuledger.domain.table import TableSpec
from gpuledger.events.position import Generations, Position
from gpuledger.ledger.identity import Anchor, LedgerIdentity
from gpuledger.projection.definition import Projection
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.fold import Fold
from gpuledger.projection.row_statements import column_types

ENCODING: Final = 1
"""How rows are written; another way is another layout."""

ROWS_PER_PIECE: Final = 5_000
"""What is encoded, written and read at once, so that neither memory nor the event loop bears a whole table."""

Row = tuple[Any, ...]


class SeenNumbers(NamedTuple):
    """The numbers seen of one source and epoch, as `Numbers` has them; `holes` is a JSON array of ranges."""

    source: str
    epoch: str
    last: int
    holes: str


SEEN: Final = TableSpec("seen", SeenNumbers, ("source", "epoch"))
ENFORCED: Final = TableSpec("enforced_rule", EnforcedRule, ("rule",))


class Layout(NamedTuple):
    """Which rows a snapshot consists of. Builds whose layouts differ do not read each other's snapshots."""

    name: str
    version: int
    specs: tuple[TableSpec[Any], ...]

    @property
    def digest(self) -> str:
        """Differs where version, tables or columns do."""
        tables = [(one.name, one.columns, column_types(one.row)) for one in self.specs]
        return sha256(repr((ENCODING, self.version, tables)).encode()).hexdigest()[:16]


class Snapshot(NamedTuple):
    """The rows of each table behind the event of the anchor, in the ledger and generation that it names."""

    ledger_id: str
    generation: int
    anchor: Anchor
    rows: Mapping[str, Sequence[Row]]

    @property
    def at(self) -> Position:
        """The position of the last event that is part of it."""
        return Position(self.generation, self.anchor.sequence)

    @property
    def size(self) -> int:
        """How many rows it has."""
        return sum(map(len, self.rows.values()))


class Piece(NamedTuple):
    """Some of a table's rows, encoded; `number` counts the pieces of a snapshot."""

    table: str
    number: int
    data: bytes


def layout_of(projection: Projection, state: State) -> Layout:
    """The layout of snapshots of a projection with such a state."""
    specs = (table.spec for table in state.tables().values())
    return Layout(projection.name, projection.version, (*specs, SEEN, ENFORCED))


def snapshot_of(fold: Fold, anchor: Anchor, identity: LedgerIdentity) -> Snapshot:
    """The fold as it stands; rows do not change, so that it may go on while this is written."""
    return Snapshot(identity.ledger_id, fold.generation, anchor, rows_of(fold))


def rows_of(fold: Fold) -> dict[str, Sequence[Row]]:
    """The rows of the fold's tables, with the numbers seen and the rules enforced."""
    rows: dict[str, Sequence[Row]] = {name: list(table.rows.values()) for name, table in fold.state.tables().items()}
    rows[SEEN.name] = seen_rows(fold.seen)
    rows[ENFORCED.name] = list(fold.enforced.rules.values())
    return rows


def fold_of(
    projection: Projection,
    snapshot: Snapshot,
    state: State,
    skipped: Iterable[Position],
    generations: Generations | None = None,
) -> Fold:
    """The fold as it stood; `state` is an empty one, and receives the rows. `generations` are those of the log."""
    for name, table in state.tables().items():
        table.load(snapshot.rows[name])
    return Fold(
        projection,
        generations or snapshot.generation,
        state=state,
        seen=seen_of(snapshot.rows[SEEN.name]),
        skipped=skipped,
        sequence=snapshot.anchor.sequence,
        enforced=EnforcedRules(EnforcedRule(*row) for row in snapshot.rows[ENFORCED.name]),
    )


def seen_rows(seen: Seen) -> list[Row]:
    """The numbers seen, in the order in which their epochs began."""
    return [
        SeenNumbers(source, epoch, one.last, orjson.dumps(one.holes).decode())
        for (source, epoch), one in seen.numbers.items()
    ]


def seen_of(rows: Iterable[Row]) -> Seen:
    """The numbers seen of such rows."""
    return Seen({(source, epoch): Numbers(last, _ranges(holes)) for source, epoch, last, holes in rows})


def _ranges(holes: str) -> Iterator[tuple[int, int]]:
    return ((first, last) for first, last in orjson.loads(holes))


def pieces_of(snapshot: Snapshot) -> Iterator[Piece]:
    """The snapshot in pieces; each is encoded only when it is asked for."""
    number = 0
    for table, rows in snapshot.rows.items():
        for start in range(0, len(rows), ROWS_PER_PIECE):
            some = rows[start : start + ROWS_PER_PIECE]
            yield Piece(table, number, orjson.dumps(list(map(list, some))))
            number += 1


class PiecesDigest:
    """What tells whole pieces from pieces that were changed, cut or mixed."""

    def __init__(self) -> None:
        self._digest = sha256()

    def add(self, piece: Piece) -> None:
        """Take the next one, in the order of their numbers."""
        self._digest.update(f"{piece.table}\n{piece.number}\n{len(piece.data)}\n".encode())
        self._digest.update(piece.data)

    @property
    def text(self) -> str:
        """The digest of all so far."""
        return self._digest.hexdigest()


class RowDecoder:
    """Decodes pieces; equal texts become one object, as where a fold interns them."""

    def __init__(self, specs: Iterable[TableSpec[Any]]) -> None:
        self._rows: dict[str, type[Row]] = {one.name: one.row for one in specs}
        types = {one.name: column_types(one.row) for one in specs}
        self._times = {name: _positions(given, "timestamptz") for name, given in types.items()}
        self._words = {name: _positions(given, "text") for name, given in types.items()}
        self._texts: dict[str, str] = {}

    def rows(self, piece: Piece) -> list[Row]:
        """The rows of a piece."""
        row_type, texts = self._rows[piece.table], self._texts
        times, words = self._times[piece.table], self._words[piece.table]
        found = []
        for values in orjson.loads(piece.data):
            for column in times:
                if values[column] is not None:
                    values[column] = datetime.fromisoformat(values[column])
            for column in words:
                value = values[column]
                values[column] = texts.setdefault(value, value)
            found.append(row_type(*values))
        return found


def _positions(types: Sequence[str], sought: str) -> list[int]:
    return [column for column, one in enumerate(types) if one == sought]
