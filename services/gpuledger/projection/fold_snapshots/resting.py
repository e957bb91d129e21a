"""The live rows of a table at a snapshot; those that rest stay columns until somebody asks for them by value."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from gpuledger.domain.table import TableSpec
from gpuledger.projection.fold_snapshots.parquet import ArrowTable, all_rows_of, concatenated
from gpuledger.projection.snapshot import Row


class LiveRows:
    """The rows of a table's pieces; with `rests` those that do not rest, and the others by the value of a column."""

    def __init__(self, spec: TableSpec[Any], parts: Sequence[ArrowTable]) -> None:
        self._spec = spec
        self._parts = parts
        self._places: dict[str, _Places] = {}

    def all(self) -> list[Row]:
        """Every row."""
        return all_rows_of(self._spec, self._parts)

    def moving(self) -> list[Row]:
        """The rows that do not rest."""
        from pyarrow import compute  # noqa: PLC0415 - with the parts it is imported already

        return all_rows_of(self._spec, (part.filter(compute.invert(self._rests(part))) for part in self._parts))

    def resting(self, column: str, value: object) -> Iterable[Row]:
        """The rows that rest and have a value in a column."""
        whole = self._resting
        if whole is None:
            return []
        if column not in self._places:
            self._places[column] = _Places(whole.column(column))
        return all_rows_of(self._spec, [whole.take(self._places[column].of(value))])

    @cached_property
    def _resting(self) -> ArrowTable | None:
        """The rows that rest, each column in one piece: to take rows of several pieces would copy all of them."""
        parts = [part.filter(self._rests(part)) for part in self._parts]
        return concatenated(*parts).combine_chunks() if any(part.num_rows for part in parts) else None

    def _rests(self, part: ArrowTable) -> Any:  # noqa: ANN401 - a column of the library
        from pyarrow import compute  # noqa: PLC0415

        first, *others = (compute.is_valid(part.column(name)) for name in self._spec.rests)
        for one in others:
            first = compute.and_(first, one)
        return first


class _Places:
    """Where the values of a column stand: a look-up in what was sorted once, because a scan takes long for each."""

    def __init__(self, column: Any) -> None:  # noqa: ANN401 - a column of the library
        from pyarrow import compute  # noqa: PLC0415

        encoded = column.combine_chunks().dictionary_encode()
        self._number_of = {value: number for number, value in enumerate(encoded.dictionary.to_pylist())}
        self._order = compute.sort_indices(encoded.indices)
        self._numbers = memoryview(encoded.indices.take(self._order).buffers()[1]).cast("i")[: len(self._order)]

    def of(self, value: object) -> Any:  # noqa: ANN401
        """The places of a value, in no order."""
        number = self._number_of.get(value, -1)
        first = bisect_left(self._numbers, number)
        return self._order.slice(first, bisect_right(self._numbers, number) - first)
