"""Compiles and evaluates the CEL expressions of quarantine rules, and translates the library's errors. Pure.

An expression sees only the variables that its place declares, and of each only the fields that it has. Its length, its
macros and what it is evaluated over are bounded, so that its evaluation is: no macro over the entities of a report
nests more than once.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import cel

from gpuledger.domain.cel_source import bound_names, selections, tokens_of

MACROS_MAX: Final = 2
"""How many macros over lists and maps an expression may have: each may multiply how long it takes by 256."""

COMPILED_MAX: Final = 1024
"""How many compiled expressions are kept."""

_MACROS: Final = frozenset(["all", "exists", "exists_one", "map", "filter"])
_FUNCTIONS: Final = frozenset(
    {
        *("has", "contains", "startsWith", "endsWith", "matches", "size", "min", "max"),
        *("int", "uint", "double", "string", "bytes", "bool", "type", "dyn", "duration", "timestamp"),
        *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"),
        *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    }
)
_TYPES: Final = frozenset(["int", "uint", "double", "string", "bytes", "bool", "list", "map", "null_type"])
_OPENING, _CLOSING = frozenset({"(", "[", "{"}), frozenset({")", "]", "}"})
_FAILURES = (ValueError, TypeError, RuntimeError, LookupError, ArithmeticError, AttributeError)

Fields = Mapping[str, Any]
"""Names of fields, each with those that it has itself; None: it holds whatever it holds."""


class ExpressionError(ValueError):
    """An expression does not compile, refers to what does not exist, or gives neither true nor false."""


class Condition(NamedTuple):
    """A compiled expression, and the names that it uses."""

    text: str
    program: cel.Program
    names: frozenset[str]


class Variables:
    """What conditions are evaluated over, by name; made and converted for the library when the first one needs it.

    The conversion takes a hundred times as long as an evaluation, and most reports match no condition about Nodes.
    """

    def __init__(self, values: Mapping[str, Callable[[], Any]]) -> None:
        self._values = values
        self._contexts: dict[frozenset[str], cel.Context] = {}

    def holds(self, condition: Condition) -> bool:
        """Whether a condition holds.

        Raises:
            ExpressionError: it cannot be evaluated over these, or gives neither true nor false.
        """
        used = condition.names.intersection(self._values)
        context = self._contexts.get(used)
        if context is None:
            context = self._contexts[used] = cel.Context({name: self._values[name]() for name in used})
        try:
            value = condition.program.execute(context)
        except _FAILURES as error:
            raise ExpressionError(_reason(error)) from error
        if isinstance(value, bool):
            return value
        raise ExpressionError(f"it gives {value!r}, neither true nor false")


@lru_cache(maxsize=COMPILED_MAX)
def compiled(text: str) -> Condition:
    """An expression as it was checked when it was configured.

    Raises:
        ExpressionError: it does not compile.
    """
    try:
        program = cel.compile(text)
    except ValueError as error:
        raise ExpressionError(f"it does not compile: {_reason(error)}") from error
    return Condition(text, program, frozenset(program.variables()))


def check(text: str, declared: Fields, samples: Collection[Variables]) -> None:
    """Check an expression before it counts, over variables with these fields.

    Each operand of `&&` and `||` is evaluated over samples by itself, so that one that gives no truth value is found
    though another one decides.

    Raises:
        ExpressionError: something is wrong with it.
    """
    program = compiled(text).program
    _check_names(text, program, declared)
    for chain in selections(text, declared.keys()):
        _check_fields(chain, declared)
    for operand in _operands(tokens_of(text)):
        _check_type(" ".join(operand), samples)


def _check_names(text: str, program: cel.Program, declared: Fields) -> None:
    for name in sorted(set(program.variables()) - declared.keys() - bound_names(text) - _TYPES):
        raise ExpressionError(f"there is no variable {name} here, but {_listed(declared)}")
    for name in sorted(set(program.functions()) - _FUNCTIONS):
        if name.isidentifier() and name.strip("_") == name:
            raise ExpressionError(f"there is no function {name}")
    macros = [one for one in _calls(tokens_of(text)) if one in _MACROS]
    if len(macros) > MACROS_MAX:
        raise ExpressionError(
            f"it has {len(macros)} macros ({_listed(macros)}), and may have {MACROS_MAX}; write several expressions"
        )


def _check_fields(chain: list[str], declared: Fields) -> None:
    fields: Fields | None = declared
    for at, name in enumerate(chain):
        if fields is None:
            return
        if name not in fields:
            raise ExpressionError(f"{'.'.join(chain[:at])} has no field {name}; it has {_listed(fields)}")
        fields = fields[name]


def _check_type(text: str, samples: Collection[Variables]) -> None:
    condition = compiled(text)
    for sample in samples:
        try:
            sample.holds(condition)
        except ExpressionError as error:
            if not isinstance(error.__cause__, LookupError | ArithmeticError):
                raise ExpressionError(f"{text!r}: {error}") from error


def _operands(tokens: list[str]) -> Iterator[list[str]]:
    """The operands of a chain of `&&` and `||`, brackets and negations around them left out."""
    while tokens[:1] == ["!"] or _is_in_brackets(tokens):
        tokens = tokens[1:] if tokens[0] == "!" else tokens[1:-1]
    operand, depth, parts, has_ternary = list[str](), 0, list[list[str]](), False
    for one in tokens:
        depth += (one in _OPENING) - (one in _CLOSING)
        has_ternary = has_ternary or (one == "?" and not depth)
        if not depth and one in ("&&", "||"):
            parts.append(operand)
            operand = []
        else:
            operand.append(one)
    if has_ternary or not parts:
        yield tokens
        return
    for part in (*parts, operand):
        yield from _operands(part)


def _is_in_brackets(tokens: list[str]) -> bool:
    depth = 0
    for at, one in enumerate(tokens):
        depth += (one in _OPENING) - (one in _CLOSING)
        if not depth:
            return one == ")" and tokens[0] == "(" and at == len(tokens) - 1
    return False


def _calls(tokens: list[str]) -> Iterator[str]:
    return (name for name, following in pairwise(tokens) if following == "(")


def _listed(names: Collection[str] | Set[str]) -> str:
    return ", ".join(sorted(names))


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"there is no key {error.args[0]!r}"
    return str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
