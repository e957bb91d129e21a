"""Refuses code that orders, counts or compares positions of the log outside `gpuledger.events.position`, their owner.

mypy refuses `<` and `-` of offsets, whatever they are called; this rule goes by the names that positions have, and so
also finds `==`, truth, sort keys and what mypy takes for any type.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OWNER: Final = "events/gpuledger/events/position.py"

_PLACE: Final = re.compile(r"_?(\w+_)?(sequence|position|head|settle_until|head_at_start|sealed_to)")
"""Names of what holds a place in the log."""

_ORDERS: Final = ("min", "max", "sorted", "abs", "range", "heappush", "bisect", "bisect_left", "bisect_right")
_COMPARES: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)

OTHER_MEANINGS: Final = {
    "services/gpuledger/agent/outbox/": "a place in an agent's own queue",
    "services/gpuledger/domain/dra/matching.py": "a place in a list of candidates",
    "services/gpuledger/local/kubeapi/": "the beginning of an answer",
    "services/gpuledger/tools/explain/why.py": "the beginning of an answer",
}
"""Files and folders in which these names mean something else, with what they mean."""


def compared_positions(path: Path) -> Iterator[str]:
    """Each place in a Python file that orders, counts or compares positions, as `file:line: what to do`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if any(map(_is_place, _judged(node))):
            line = getattr(node, "lineno", 0)
            yield f"{path}:{line}: `{ast.unparse(node)[:80]}` works with a position; {OWNER} has what does that"


def _judged(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions whose value the node looks into."""
    match node:
        case ast.Compare(left, ops, others):
            for op, before, after in zip(ops, [left, *others], others, strict=False):
                if isinstance(op, _COMPARES):
                    yield from (*_parts(before), *_parts(after))
        case ast.BinOp(left, _, right) | ast.AugAssign(left, _, right):
            yield from (left, right)
        case ast.BoolOp(_, values):
            yield from values
        case ast.If(test) | ast.IfExp(test) | ast.While(test) | ast.UnaryOp(ast.Not(), test):
            yield test
        case ast.Call(function, arguments, keywords):
            yield from _ordered(function, arguments, keywords)
        case ast.JoinedStr(parts):
            yield from _written(parts)


def _written(parts: list[ast.expr]) -> Iterator[ast.expr]:
    """What stands behind a generation and a slash, as in the text of a position."""
    for before, between, after in zip(parts, parts[1:], parts[2:], strict=False):
        match before, between, after:
            case ast.FormattedValue(ast.Name(name) | ast.Attribute(_, name)), ast.Constant("/"), ast.FormattedValue(at):
                if name.endswith("generation"):
                    yield at


def _ordered(function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Iterator[ast.expr]:
    """What a call puts in order: what it is given, and what it is given to sort by."""
    name = function.id if isinstance(function, ast.Name) else ""
    for one in arguments:
        if name in _ORDERS:
            yield from _parts(one)
        elif name == "attrgetter" and isinstance(one, ast.Constant):
            yield ast.Name(str(one.value))
    for keyword in keywords:
        if keyword.arg == "key" and isinstance(keyword.value, ast.Lambda):
            yield from _parts(keyword.value.body)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """What is compared where tuples and comprehensions are."""
    match node:
        case ast.Tuple(elements) | ast.List(elements):
            for one in elements:
                yield from _parts(one)
        case ast.GeneratorExp(element) | ast.ListComp(element) | ast.SetComp(element):
            yield from _parts(element)
        case _:
            yield node


def _is_place(node: ast.expr) -> bool:
    match node:
        case ast.Name(name) | ast.Attribute(_, name) | ast.Subscript(_, ast.Constant(str(name))):
            return _PLACE.fullmatch(name) is not None
        case ast.Await(ast.Call(ast.Attribute(_, name))):
            return _PLACE.fullmatch(name) is not None
    return False
