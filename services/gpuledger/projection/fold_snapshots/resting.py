"""The live rows of a table at a snapshot; those that rest stay columns until somebody asks for them by value."""

from collections.abc import Iterable, Sequence
from typing import Any

from gpuledger.domain.table import TableSpec
from gpuledger.projection.fold_snapshots.parquet import ArrowTable, all_rows_of
from gpuledger.projection.snapshot import Row


class LiveRows:
    """The rows of a table's pieces; with `rests` those that do not rest, and the others by the value of a column."""

    def __init__(self, spec: TableSpec[Any], parts: Sequence[ArrowTable]) -> None:
        self._spec = spec
        self._parts = parts

    def all(self) -> list[Row]:
        """Every row."""
        return all_rows_of(self._spec, self._parts)

    def moving(self) -> list[Row]:
        """The rows that do not rest."""
        from pyarrow import compute  # noqa: PLC0415 - with the parts it is imported already

        return all_rows_of(self._spec, (part.filter(compute.invert(self._rests(part))) for part in self._parts))

    def resting(self, column: str, value: object) -> Iterable[Row]:
        """The rows that rest and have a value in a column."""
        from pyarrow import compute  # noqa: PLC0415

        found = (part.filter(compute.equal(part.column(column), value)) for part in self._parts)
        return all_rows_of(self._spec, (part.filter(self._rests(part)) for part in found if part.num_rows))

    def _rests(self, part: ArrowTable) -> Any:  # noqa: ANN401 - a column of the library
        from pyarrow import compute  # noqa: PLC0415

        first, *others = (compute.is_valid(part.column(name)) for name in self._spec.rests)
        for one in others:
            first = compute.and_(first, one)
        return first
