"""The layout of a kind of row: its columns and its name, and the output formats. Data only."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum


class Output(StrEnum):
    """The formats of `-o`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Without a `key` the row's key is the name in snake case (`GPU-HOURS` shows `gpu_hours`). `wide` columns are
    shown by `-o wide` only. `format` makes the text of a value; it is never called with None. A column that `wraps`
    has long texts of several facts, which go over several lines where a table is wider than the terminal.
    """

    name: str
    key: str | None = None
    wide: bool = False
    right: bool = False
    format: Callable[[object], str] | None = None
    wraps: bool = False

    @property
    def field(self) -> str:
        """The key of the row that this column shows."""
        return self.key or self.name.lower().replace("-", "_").replace(" ", "_")

    @property
    def heading(self) -> str:
        """The header, in capitals and without spaces, so that a header line splits like its rows."""
        return self.name.upper().replace("_", "-").replace(" ", "-")


@dataclass(frozen=True, slots=True)
class View:
    """A kind of row: `kind` in the singular (`device`), the columns of its table, and the key of its name.

    Without columns a table shows all keys of the first row. Without a `name_key` the rows have no names, and
    `-o name` is refused. `plural` is for kinds that English does not pluralise by rule.
    """

    kind: str
    columns: tuple[Column, ...] = ()
    name_key: str = ""
    plural: str = ""

    @property
    def kinds(self) -> str:
        """The kind in the plural."""
        return self.plural or _plural(self.kind)

    def shown(self, output: Output) -> tuple[Column, ...]:
        """The columns of this view's table in that output."""
        return tuple(column for column in self.columns if output is Output.WIDE or not column.wide)

    def needed(self, output: Output) -> tuple[str, ...]:
        """The keys of the rows that this output shows, the name among them; none: whatever keys they have."""
        if output is Output.NAME:
            return (self.name_key,) if self.name_key else ()
        if output not in (Output.TABLE, Output.WIDE) or not self.columns:
            return ()
        keys = (*(column.field for column in self.shown(output)), self.name_key)
        return tuple(dict.fromkeys(key for key in keys if key))


def columns_of(keys: Iterable[str]) -> tuple[Column, ...]:
    """Columns for rows whose keys come with the rows, such as those of a query."""
    return tuple(Column(key, key) for key in keys)


def _plural(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"
