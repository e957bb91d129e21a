"""The retired rows of a table up to a snapshot, as columns; whoever folds on has a few of them as rows.

There may be millions, of which a late event needs tens: nobody decodes more of a piece than he looks into.
"""

from collections.abc import Collection, Iterable
from typing import Any

from gpuledger.domain.table import Key, TableSpec
from gpuledger.projection.fold_snapshots.parquet import GONE, ArrowTable, Columns, HeldColumns, rows_of
from gpuledger.projection.snapshot import Row


class RetiredRows:
    """Retired rows in the order in which they left memory; of those with one key the last counts, unless it is gone.

    Those of a table that `adds` are what its sums grew by, and all of them count.
    """

    def __init__(self, spec: TableSpec[Any], parts: Iterable[Columns]) -> None:
        self._spec = spec
        self._parts = list(parts)

    def append(self, part: ArrowTable) -> None:
        """Add what left memory since."""
        self._parts.append(HeldColumns(part))

    def page(self, name: str, values: Collection[Key]) -> list[Row]:
        """The rows in which a column of `page_by` has one of the values."""
        return self._last_of(found for part in self._parts for found in part.where(name, values))

    def all(self) -> list[Row]:
        """Every row."""
        return self._last_of(part.all() for part in self._parts)

    def _last_of(self, parts: Iterable[ArrowTable]) -> list[Row]:
        positions = [self._spec.columns.index(name) for name in self._spec.key]
        last: dict[tuple[Any, ...], Row] = {}
        for part in parts:
            gone = part.column(GONE).to_pylist()
            for row, is_gone in zip(rows_of(self._spec, part), gone, strict=True):
                key = tuple(row[position] for position in positions)
                if is_gone:
                    last.pop(key, None)
                else:
                    last[key] = self._spec.added(last.get(key), row)
        return [row for row in last.values() if not self._spec.is_nothing(row)]
