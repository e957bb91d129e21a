"""Proof that snapshots are what the log says: a fold from the start up to a snapshot's position, compared row by row.

A snapshot that a start would refuse, because it is of another log, is not compared: nobody begins at it.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol

from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.table import TableSpec
from gpuledger.events.position import Offset, Position
from gpuledger.ledger.api import Ledger
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import WriterFencedError
from gpuledger.projection.fold import Fold
from gpuledger.projection.replay import OnProgress, fold_on, memory_fold
from gpuledger.projection.snapshot import Layout, Row, Snapshot, layout_of, rows_of
from gpuledger.projection.snapshot_store import SnapshotStore
from gpuledger.projection.snapshots import refusal_of
from gpuledger.projection.verify import SNAPSHOT, Difference, Verification

SNAPSHOTS_MAX = 20
"""How often a snapshot may be replaced by a later one while the log is folded up to it."""


class ComparedFold(Protocol):
    """A fold of the log from its start in memory, whose rows are compared with those of snapshots of this layout.

    Rows of the tables `forgotten_by_effects` may be missing from a snapshot.
    """

    @property
    def layout(self) -> Layout:
        """Which snapshots these are."""

    @property
    def forgotten_by_effects(self) -> frozenset[str]:
        """As of a projection."""

    async def rows_at(self, until: Offset, on_progress: OnProgress | None) -> Mapping[str, Sequence[Row]]:
        """The rows behind a position, which is not before that of the last call."""


class ComparedProjection:
    """The fold of a projection that writes no rows of its own."""

    def __init__(self, projection: Projection, ledger: Ledger) -> None:
        self.layout = layout_of(projection, projection.new_state())
        self.forgotten_by_effects = projection.forgotten_by_effects
        self._projection = projection
        self._ledger = ledger
        self._fold: Fold | None = None

    async def rows_at(self, until: Offset, on_progress: OnProgress | None) -> Mapping[str, Sequence[Row]]:
        """The rows behind a position."""
        if self._fold is None:
            self._fold = await memory_fold(self._projection, self._ledger)
        await fold_on(self._fold, self._ledger, until, on_progress)
        return rows_of(self._fold)


async def verify_snapshot(
    compared: ComparedFold, ledger: Ledger, connection: AsyncConnection, on_progress: OnProgress | None = None
) -> Verification | None:
    """Compare the snapshot of this layout with the log; None where there is none at which a start would begin.

    Raises:
        SnapshotDamagedError: its rows are not those that were written.
        ProjectionError: the log does not fold.
    """
    store = SnapshotStore(connection, compared.layout)
    for _ in range(SNAPSHOTS_MAX):
        header = await store.header()
        if header is None or await refusal_of(header, ledger) is not None:
            return None
        expected = await compared.rows_at(header.anchor.sequence, on_progress)
        found = await store.load(header)
        if found is not None:
            return _compare(compared, expected, found)
    raise WriterFencedError(
        f"The snapshot {compared.layout.name} was replaced again and again meanwhile. Verify again."
    )


def _compare(compared: ComparedFold, expected: Mapping[str, Sequence[Row]], found: Snapshot) -> Verification:
    name, at = f"{SNAPSHOT}{compared.layout.name}", Position(found.generation, found.anchor.sequence)
    rows, differences = 0, 0
    first: Difference | None = None
    for spec in compared.layout.specs:
        may_lack = spec.name in compared.forgotten_by_effects
        here = list(_differences(spec, expected[spec.name], found.rows[spec.name], may_lack=may_lack))
        rows += len(expected[spec.name])
        differences += len(here)
        if first is None and here:
            first = min(here, key=lambda one: tuple(map(str, one.key)))
    return Verification(name, at, rows, differences, first)


def _differences(
    spec: TableSpec[Any], expected: Sequence[Row], found: Sequence[Row], *, may_lack: bool
) -> Iterator[Difference]:
    key_of = itemgetter(*(spec.columns.index(column) for column in spec.key))
    left = {key_of(row): row for row in expected}
    for row in found:
        right = left.pop(key_of(row), None)
        if right != row:
            yield Difference(spec.name, _as_tuple(key_of(row)), right, row)
    if not may_lack:
        yield from (Difference(spec.name, _as_tuple(key), row, None) for key, row in left.items())


def _as_tuple(key: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a key is a value, or a tuple of them
    return key if isinstance(key, tuple) else (key,)
