"""Nested facts as lines, as `kubectl describe` lays out an object: names, indented, with values in a column.

An item of a list begins with its first field; a page that needs more than that wants a table.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.cells import cell_len

from gpuledger.cli.errors import visible
from gpuledger.cli.render import Column
from gpuledger.cli.render.values import NONE, cell

INDENT: Final = "  "
GAP: Final = "  "
_ANY = Column("any")
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")

Tree = Mapping[str, object]


def tree_lines(tree: Tree, depth: int = 0) -> Iterator[str]:
    """The lines of a tree; what is None is left out."""
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


def spelt(key: str) -> str:
    """The name of a field as pages spell it: `claimUID` is `Claim UID`."""
    return " ".join(word[:1].upper() + word[1:] for word in _WORD.findall(key))


def spelt_tree(document: object) -> object:
    """A document of the API with its fields spelt as on pages."""
    if isinstance(document, Mapping):
        return {spelt(key): spelt_tree(value) for key, value in document.items()}
    return [spelt_tree(one) for one in document] if isinstance(document, list) else document


def _below(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from tree_lines(value, depth)
    elif isinstance(value, Sequence):
        for one in value:
            yield from tree_lines(one, depth) if isinstance(one, Mapping) else [f"{INDENT * depth}{visible(str(one))}"]


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple)
