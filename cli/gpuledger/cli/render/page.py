"""A page about one thing, as `kubectl describe` lays it out: fields, then sections of fields, lists and tables.

Text comes from machines that nobody vouches for, so none of it reaches the terminal with a control character.
"""

from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len

from gpuledger.cli.errors import visible
from gpuledger.cli.render import Column, Console, quiet_pipe
from gpuledger.cli.render.tree import Tree, tree_lines
from gpuledger.cli.render.values import NONE, cell

INDENT = "  "
GAP = "  "

Fields = Mapping[str, object]


class Page:
    """Collects the lines of a page; `show` writes them."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def fields(self, fields: Fields, *, title: str = "") -> None:
        """Names and values, one a line; a mapping as value has a line for each of its entries."""
        indent = INDENT if title else ""
        if title:
            self._lines.append(f"{title}:" if fields else f"{title}:{GAP}{NONE}")
        width = max((len(name) for name in fields), default=0) + 1
        for name, value in fields.items():
            texts = _texts(value)
            self._lines.append(f"{indent}{visible(name) + ':':<{width}}{GAP}{texts[0]}")
            self._lines += [f"{indent}{'':<{width}}{GAP}{text}" for text in texts[1:]]

    def table(self, title: str, rows: Iterable[Mapping[str, object]], columns: Sequence[Column]) -> None:
        """Rows under headings; `<none>` beside the title where there are none."""
        lines = [[cell(row.get(column.field), column) for column in columns] for row in rows]
        if not lines:
            self.line(title, NONE)
            return
        headings = [column.name for column in columns]
        rules = ["-" * len(heading) for heading in headings]
        widths = [max(map(cell_len, texts)) for texts in zip(*lines, headings, strict=True)]
        self._lines.append(f"{title}:")
        self._lines += [_row(texts, widths) for texts in (headings, rules, *lines)]

    def line(self, title: str, text: str) -> None:
        """One line."""
        self._lines.append(f"{title}:{GAP}{visible(text)}")

    def tree(self, tree: Tree) -> None:
        """Nested fields."""
        self._lines += tree_lines(tree)

    def show(self, console: Console | None = None) -> None:
        """Write the page to stdout."""
        console = console or Console.standard()
        with quiet_pipe(console.out):
            console.out.writelines(f"{line.rstrip(' ')}\n" for line in self._lines)


def _texts(value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{visible(str(key))}={cell(item, _ANY)}" for key, item in sorted(value.items())] or [NONE]
    return [cell(value, _ANY)]


def _row(texts: Sequence[str], widths: Sequence[int]) -> str:
    cells = (f"{text}{' ' * (width - cell_len(text))}" for text, width in zip(texts, widths, strict=True))
    return f"{INDENT}{GAP.join(cells)}"


_ANY = Column("any")
