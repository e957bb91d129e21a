"""Checks whether a CEL selector of devices compiles, more simply than the type checker of a real server.

It refuses expressions that do not parse, that name anything but `device`, or that are obviously not boolean, and
accepts all others.
"""

from functools import lru_cache
from typing import Any

import cel

COMPILED_MAX = 512
"""The size of the cache of compiled expressions."""

_NAMESPACES = frozenset({"cel", "math", "sets", "optional", "semver", "quantity", "strings", "lists", "type"})
_TYPES = frozenset({"bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "uint"})
_BINDERS = frozenset({"bind", "exists", "exists_one", "filter", "map", "all", "transformList", "transformMap"})
_NOT_UNDERSTOOD = "unsupported syntax"
_DEVICE = {"driver": "", "attributes": {}, "capacity": {}, "allowMultipleAllocations": False}


@lru_cache(maxsize=COMPILED_MAX)
def selector_problem(expression: str) -> str | None:
    """Why an expression cannot select devices; None if nothing is wrong."""
    if not expression.strip():
        return "compilation failed: the expression is empty"
    try:
        program = cel.compile(expression)
    except ValueError as error:
        return None if _NOT_UNDERSTOOD in str(error) else f"compilation failed: {error}"
    unknown = _undeclared(expression, program)
    if unknown:
        return f"compilation failed: undeclared reference to '{unknown}'"
    return _result_problem(program)


def _undeclared(expression: str, program: Any) -> str | None:
    if any(f"{name}(" in expression for name in _BINDERS):
        return None
    declared = {"device"} | _NAMESPACES | _TYPES
    return next((name for name in program.variables() if name not in declared), None)


def _result_problem(program: Any) -> str | None:
    try:
        result = program.execute({"device": _DEVICE})
    except (ValueError, TypeError, RuntimeError, LookupError, ArithmeticError, AttributeError):
        return None
    if isinstance(result, bool):
        return None
    return f"must evaluate to bool or the unknown type, not {_NAMES.get(type(result), 'an object')}"


_NAMES: dict[type, str] = {str: "string", int: "int", float: "double", dict: "map", list: "list", bytes: "bytes"}
