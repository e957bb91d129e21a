"""A page about one thing, as `kubectl describe` lays it out: fields, then sections of fields, lists and tables.

Text comes from machines that nobody vouches for, so no control character of it reaches the terminal.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.cells import cell_len

from gpuledger.cli.errors import visible
from gpuledger.cli.render import Column, Console, quiet_pipe
from gpuledger.cli.render.values import NONE, cell, json_text, yaml_text

INDENT: Final = "  "
GAP: Final = "  "

_ANY = Column("any")
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")

Tree = Mapping[str, object]
"""Nested fields by name; those that are None are left out."""


class Page:
    """Collects the lines of a page; `show` writes them."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def fields(self, fields: Tree, *, title: str = "") -> None:
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


def tree_lines(tree: Tree, depth: int = 0) -> Iterator[str]:
    """The lines of a tree; fields that are None are left out."""
    indent = INDENT * depth
    shown = {key: value for key, value in tree.items() if value is not None}
    width = max((cell_len(key) for key, value in shown.items() if not _is_nested(value)), default=0) + 1
    for key, value in shown.items():
        name = f"{visible(key)}:"
        if not _is_nested(value):
            yield f"{indent}{name}{' ' * (width - cell_len(name))}{GAP}{cell(value, _ANY)}"
        elif not value:
            yield f"{indent}{name}{GAP}{NONE}"
        else:
            yield f"{indent}{name}"
            yield from _below(value, depth + 1)


def field_name(key: str) -> str:
    """The name of a field on pages: `claimUID` becomes `Claim UID`."""
    return " ".join(word[:1].upper() + word[1:] for word in _WORD.findall(key))


def named_tree(document: object) -> object:
    """A document of the API with the names that its fields have on pages."""
    if isinstance(document, Mapping):
        return {field_name(key): named_tree(value) for key, value in document.items()}
    return [named_tree(one) for one in document] if isinstance(document, list) else document


def _below(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from tree_lines(value, depth)
    elif isinstance(value, Sequence):
        for one in value:
            yield from tree_lines(one, depth) if isinstance(one, Mapping) else [f"{INDENT * depth}{visible(str(one))}"]


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple)


Document = dict[str, Any]


class AnswerOutput(StrEnum):
    """The formats of `-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[AnswerOutput, typer.Option("--output", "-o", help="Output format.")]


def show_answer(document: Document, output: AnswerOutput, page_of: Callable[[Document], Page]) -> None:
    """Show an answer as a page, or as a document of JSON or YAML."""
    if output is AnswerOutput.TABLE:
        page_of(document).show()
        return
    console = Console.standard()
    with quiet_pipe(console.out):
        as_json = output is AnswerOutput.JSON
        console.out.write(f"{json_text(document, indent=True)}\n" if as_json else yaml_text(document))
