"""Tables in memory: the state of a fold.

A table tracks which rows changed since they were last taken for writing, and keeps its declared indexes. It does not
know who writes the rows and reads nothing itself: the caller of the fold loads rows that have retired.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

R = TypeVar("R", bound=tuple[Any, ...])
"""A row is a NamedTuple: immutable, compact, and in the order of its table's columns."""


class Sum(int):
    """A column that holds a sum: of any length in PostgreSQL, so that no sum of valid amounts is too large for it."""


Key = Any
"""The value of the key column, or the tuple of them where the key has several."""


class TableSpec(NamedTuple, Generic[R]):
    """The definition of a table.

    `retires` names the columns that are all set once the fold is not expected to touch a row again; it then leaves
    memory when it is written (no columns: at once; None: never). Columns of the key are set from the start: such a row
    leaves at once as well, and its key must never return, because it is appended without a look at what is there.
    Where `page_by` names columns, all rows that share a value of one are read back when an event touches one of them
    after all; without it a retired row is history, appended and never changed.

    Where `adds` names columns, a row is what these have to grow by: whoever writes it adds it to the stored row, and a
    row whose sums are all 0 is none. So it leaves memory at once and is never read back.

    Rows of a `history` end at the time in `ended_by`, or else in the one column by which they retire, and operators may
    shorten it: see `Table.shorten`. A row that ended has retired.

    Stored rows are kept apart by the month of the column `by_month`, where it names one: a time of the key, so that a
    row never moves. To look for the rows of one value of `page_by` is then a look into each month. Where `page_after`
    names another table that pages by the same column, there is none here of a value of which that table has none.
    """

    name: str
    row: type[R]
    key: tuple[str, ...]
    retires: tuple[str, ...] | None = None
    page_by: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    history: str | None = None
    by_month: str | None = None
    page_after: str | None = None
    ended_by: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, in the order of the row's fields."""
        columns: tuple[str, ...] = vars(self.row)["_fields"]
        return columns

    def added(self, before: R | None, row: R) -> R:
        """The row that follows from one before it with the same key: the sum of both where the table `adds`."""
        if before is None or not self.adds:
            return row
        sums = {name: Sum(getattr(before, name) + getattr(row, name)) for name in self.adds}
        return row._replace(**sums)  # type: ignore[attr-defined, no-any-return]

    def is_nothing(self, row: R) -> bool:
        """Whether the sums of a row of a table that `adds` are all 0."""
        return bool(self.adds) and not any(getattr(row, name) for name in self.adds)

    @property
    def ends(self) -> str:
        """The column of the time when a row of a history ended."""
        assert self.history is not None, "it is part of a history"
        if self.ended_by is not None:
            return self.ended_by
        assert self.retires is not None, "what ended retires"
        (column,) = self.retires
        return column

    @property
    def is_append_only(self) -> bool:
        """Whether every row leaves memory when it is first written, so that none is live."""
        return self.retires is not None and set(self.retires) <= set(self.key)


class Changes(NamedTuple, Generic[R]):
    """What to write: rows that the store does not have, rows that it may have in another form, and keys to delete.

    A table whose rows leave memory at once cannot recognise a key that returns, so all its rows count as changed, and a
    key to delete may never have been stored.
    """

    new: list[R]
    changed: list[R]
    gone: list[Key]

    def __len__(self) -> int:
        return len(self.new) + len(self.changed) + len(self.gone)


KEYS_PER_TUPLE_MAX = 8
"""Up to here an index keeps the keys of a value in a tuple, usually of one key; copying a longer one is slow."""


class _ManyKeys(dict[Key, None]):
    """Keys in order of insertion. An iteration sees the keys at its beginning, as with a tuple."""

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self.keys()))


class Index(Generic[R]):
    """Keys of a table's rows by the value of one column, in order of insertion."""

    def __init__(self, position: int) -> None:
        self._value_of: Callable[[R], Any] = itemgetter(position)
        self._keys: dict[Any, tuple[Key, ...] | _ManyKeys] = {}

    def get(self, value: object) -> Collection[Key]:
        """The keys of the rows that have this value."""
        return self._keys.get(value, ())

    def add(self, key: Key, row: R) -> None:
        """Add a row that the table did not have."""
        value = self._value_of(row)
        keys = self._keys.get(value)
        if keys is None:
            self._keys[value] = (key,)
        elif isinstance(keys, _ManyKeys):
            keys[key] = None
        elif len(keys) < KEYS_PER_TUPLE_MAX:
            self._keys[value] = (*keys, key)
        else:
            self._keys[value] = _ManyKeys(dict.fromkeys((*keys, key)))

    def fill(self, keys: Collection[Key], rows: Collection[R]) -> None:
        """Add rows that the table did not have, perhaps many; where each has a value of its own, at once."""
        values = list(map(self._value_of, rows))
        if not self._keys:
            first: dict[Any, tuple[Key, ...] | _ManyKeys] = dict(zip(values, zip(keys, strict=True), strict=True))
            if len(first) == len(values):
                self._keys = first
                return
        found = self._keys
        for key, row, value in zip(keys, rows, values, strict=True):
            if value in found:
                self.add(key, row)
            else:
                found[value] = (key,)

    def remove(self, key: Key, row: R) -> None:
        """Forget a row; does nothing where it is not indexed."""
        value = self._value_of(row)
        keys = self._keys.get(value, ())
        if isinstance(keys, _ManyKeys):
            keys.pop(key, None)
            left: Collection[Key] = keys
        else:
            left = self._keys[value] = tuple(other for other in keys if other != key)
        if not left:
            del self._keys[value]


class Table(Generic[R]):
    """Rows by key, with the changes since they were last taken. Indexed columns must not change in a row's life."""

    def __init__(self, spec: TableSpec[R], *indexed: str) -> None:
        self.spec = spec
        self.key_of: Callable[[R], Key] = itemgetter(*(spec.columns.index(column) for column in spec.key))
        self.rows: dict[Key, R] = {}
        self._indexed = indexed
        self._make_indexes()
        self._forgets = spec.retires == ()
        self._retiring = tuple(map(spec.columns.index, spec.retires or ()))
        self._was_stored: dict[Key, bool] = {}
        self._paged_in: dict[Key, None] = {}
        self._is_written = True
        self.begins: datetime | None = None
        """Rows that ended before are none; None where all are kept."""
        self._end_of: Callable[[R], datetime | None] | None = None

    def _make_indexes(self) -> None:
        columns = self.spec.columns
        self.by: dict[str, Index[R]] = {column: Index(columns.index(column)) for column in self._indexed}
        self._indexes = tuple(self.by.values())

    def __len__(self) -> int:
        return len(self.rows)

    def get(self, key: Key) -> R | None:
        """The row with this key, if it is in memory."""
        return self.rows.get(key)

    def where(self, column: str, value: object) -> list[R]:
        """The rows whose indexed column has this value."""
        keys, rows = self.by[column].get(value), self.rows
        return [rows[key] for key in keys] if keys else []

    @property
    def changed(self) -> int:
        """How many rows changed since the last call of `take_changes`, at most."""
        return len(self._was_stored)

    def never_written(self) -> None:
        """Stop tracking changes; for folds whose rows are never written."""
        self._is_written = False

    def shorten(self, begins: datetime) -> None:
        """Drop the rows that ended before a time, and from now on whatever ended before.

        Stored rows that have left memory are for others to delete, who look at `begins`.
        """
        if self.begins is not None and begins <= self.begins:
            return
        self.begins = begins
        self._end_of = itemgetter(self.spec.columns.index(self.spec.ends))
        for key in [key for key, row in self.rows.items() if self.is_dropped(row)]:
            self.delete(key)

    def is_dropped(self, row: R) -> bool:
        """Whether a row ended before the history begins."""
        if self.begins is None or self._end_of is None:
            return False
        end = self._end_of(row)
        return end is not None and end < self.begins

    def put(self, row: R) -> None:
        """Insert the row, or replace the one with its key."""
        key, rows = self.key_of(row), self.rows
        if self.begins is not None and self.is_dropped(row):
            self.delete(key)
            return
        size = len(rows)
        rows[key] = row
        is_new = len(rows) != size
        if self._is_written:
            self._was_stored.setdefault(key, not is_new or self._forgets)
        if is_new:
            for index in self._indexes:
                index.add(key, row)

    def add(self, row: R) -> None:
        """Add a row to the sums of the row with its key, where the table `adds`; nothing is left of sums of 0."""
        key = self.key_of(row)
        before = self.rows.get(key)
        row = self.spec.added(before, row)
        if not self.spec.is_nothing(row):
            self.put(row)
        elif before is not None:
            del self.rows[key]
            self._was_stored.pop(key, None)

    def delete(self, key: Key) -> None:
        """Remove the row with this key; does nothing where there is none."""
        row = self.rows.pop(key, None)
        if row is None:
            return
        if self._is_written or self.spec.page_by:
            self._was_stored.setdefault(key, True)
        for index in self._indexes:
            index.remove(key, row)

    def load(self, rows: Iterable[R]) -> None:
        """Load rows from the store; they count as unchanged. Rows changed or deleted meanwhile stay so."""
        held, changed = self.rows, self._was_stored
        given = list(rows)
        found = dict(zip(map(self.key_of, given), given, strict=True))
        if held or changed:
            found = {key: row for key, row in found.items() if key not in held and key not in changed}
        if self.begins is not None:
            found = {key: row for key, row in found.items() if not self.is_dropped(row)}
        held.update(found)
        if self._is_written and self.spec.retires is not None:
            self._paged_in.update((key, None) for key, row in found.items() if self._has_retired(row))
        for index in self._indexes:
            index.fill(found.keys(), found.values())

    def load_lazily(self, rows: Callable[[], Iterable[R]]) -> None:
        """Load rows from the store once anybody asks for any; the table has none yet."""
        self._to_load = rows
        del self.rows, self.by, self._indexes

    @property
    def is_loaded(self) -> bool:
        """Whether nothing is left of what `load_lazily` was to load."""
        return "rows" in vars(self)

    if not TYPE_CHECKING:  # mypy would take any name for an attribute

        def __getattr__(self, name: str) -> object:
            """Load the rows at the first use of what `load_lazily` left out."""
            if name not in ("rows", "by", "_indexes"):
                raise AttributeError(name, name=name, obj=self)
            rows, self.rows = vars(self).pop("_to_load"), {}
            self._make_indexes()
            self.load(rows())
            return vars(self)[name]

    def has_changes(self) -> bool:
        """Whether to call `take_changes`: to write rows, or to let rows that were paged in leave memory."""
        return bool(self._was_stored or self._paged_in)

    def take_changes(self) -> Changes[R]:
        """The changes since the last call; retired rows, changed or paged in, leave memory."""
        changes, rows = Changes[R]([], [], []), self.rows
        for key, was_stored in self._was_stored.items():
            row = rows.get(key)
            if row is not None:
                (changes.changed if was_stored else changes.new).append(row)
            elif was_stored:
                changes.gone.append(key)
        if self.spec.retires is not None:
            self._evict(chain(self._was_stored, self._paged_in))
        self._was_stored, self._paged_in = {}, {}
        return changes

    def _evict(self, keys: Iterable[Key]) -> None:
        for key in keys:
            row = self.rows.get(key)
            if row is not None and self._has_retired(row):
                del self.rows[key]
                for index in self._indexes:
                    index.remove(key, row)

    def _has_retired(self, row: R) -> bool:
        for position in self._retiring:  # noqa: SIM110 - a generator takes thrice as long, for every row written
            if row[position] is None:
                return False
        return True
