"""Whether a selector of devices compiles: a cheap check in place of the real server's type checker.

It refuses what does not parse, what names anything but `device`, and what is seen not to be a boolean. What it cannot
tell, it accepts.
"""

from functools import lru_cache
from typing import Any

import cel

COMPILED_MAX = 512
"""How many expressions are remembered."""

_NAMESPACES = frozenset({"cel", "math", "sets", "optional", "semver", "quantity", "strings", "lists", "type"})
_TYPES = frozenset({"bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "uint"})
_BINDERS = frozenset({"bind", "exists", "exists_one", "filter", "map", "all", "transformList", "transformMap"})
_NOT_UNDERSTOOD = "unsupported syntax"
_DEVICE = {"driver": "", "attributes": {}, "capacity": {}, "allowMultipleAllocations": False}


@lru_cache(maxsize=COMPILED_MAX)
def selector_problem(expression: str) -> str | None:
    """What keeps an expression from selecting devices; None where nothing is found."""
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
