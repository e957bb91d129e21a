"""Rows as a query returned them: mappings for whoever goes through them, whole columns for whoever shows many.

A mapping for each of 100,000 rows takes as long as to fetch them, and a table needs none.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

RowDict = Mapping[str, object]


class FoundRows(Sequence[RowDict]):
    """Rows of some columns, in the order of the query; `rows` have a value for each name."""

    __hash__ = None  # type: ignore[assignment] # equal to any sequence of equal rows

    def __init__(self, names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
        self.names = tuple(names)
        self._rows = rows

    def column(self, name: str) -> Sequence[object]:
        """The values of a column, in the order of the rows; None for each where there is no such column."""
        if name not in self.names:
            return [None] * len(self._rows)
        place = self.names.index(name)
        return [row[place] for row in self._rows]

    def followed_by(self, other: "FoundRows") -> "FoundRows":
        """These rows and then others of the same columns."""
        return FoundRows(self.names, [*self._rows, *other._rows])  # noqa: SLF001 - of the same class

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[RowDict]:
        return (dict(zip(self.names, row, strict=True)) for row in self._rows)

    @overload
    def __getitem__(self, place: int) -> RowDict: ...
    @overload
    def __getitem__(self, place: slice) -> "FoundRows": ...
    def __getitem__(self, place: int | slice) -> "RowDict | FoundRows":
        if isinstance(place, slice):
            return FoundRows(self.names, self._rows[place])
        return dict(zip(self.names, self._rows[place], strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(dict.__eq__, map(dict, self), other))

    def __repr__(self) -> str:
        return repr(list(self))
