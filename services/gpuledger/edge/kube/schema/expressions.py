"""Compiles CEL expressions as Kubernetes extends the language, for rules of schemas and for admission alike.

An expression may use only the variables that its place declares. Types are not checked before it is evaluated.
"""

from collections.abc import Callable, Mapping, Set
from typing import Any, Final, NamedTuple

import cel

from gpuledger.domain.cel_source import bound_names, rewritten
from gpuledger.edge.kube.schema.cel_functions import FUNCTIONS, NAMESPACES, NATIVE, NOT_IMPLEMENTED, TYPES

MESSAGE_MAX: Final = 5 * 1024
"""The longest message that an expression may make."""

FAILURES: Final = (ValueError, TypeError, RuntimeError, LookupError, ArithmeticError, AttributeError)
"""What the evaluation of an expression may raise."""

_OF_REWRITING = frozenset({"kEntry"})

Functions = Mapping[str, Callable[..., Any]]


class ExpressionError(ValueError):
    """An expression does not compile, or refers to unknown names."""


class UnsupportedExpressionError(ExpressionError):
    """An expression uses something of Kubernetes that is not implemented."""


class Expression(NamedTuple):
    """A compiled expression and the functions it needs."""

    program: cel.Program
    functions: Functions

    def value(self, variables: Mapping[str, Any]) -> Any:
        """The result; raises `FAILURES`."""
        return self.program.execute(cel.Context(dict(variables), dict(self.functions)))


class Scope:
    """Variables and further functions that several expressions are evaluated over.

    Converting an object for the library takes far longer than evaluating, so expressions that need the same share it.
    """

    def __init__(self, variables: Mapping[str, Any], functions: Functions) -> None:
        self._variables = variables
        self._functions = functions
        self._contexts: dict[tuple[frozenset[str], frozenset[str]], cel.Context] = {}

    def value(self, expression: Expression) -> Any:
        """The result; raises `FAILURES`."""
        used = self._variables.keys() & set(expression.program.variables())
        key = frozenset(used), frozenset(expression.functions)
        if key not in self._contexts:
            variables = {name: self._variables[name] for name in used}
            self._contexts[key] = cel.Context(variables, {**expression.functions, **self._functions})
        return expression.program.execute(self._contexts[key])


def compiled_over(text: str, declared: Set[str], *, more: Set[str] = frozenset()) -> Expression:
    """An expression over variables and `more` functions.

    Raises:
        ExpressionError: it does not compile, or refers to others.
    """
    try:
        program = cel.compile(rewritten(text))
    except ValueError as error:
        raise ExpressionError(f"compilation failed: {error}") from error
    names = set(program.functions())
    _check_variables(set(program.variables()), declared | bound_names(text))
    _check_functions(names - more)
    needed = {name: one for name, one in FUNCTIONS.items() if name.rpartition(".")[2] in names}
    return Expression(program, needed)


def failure_text(error: Exception) -> str:
    """Why an expression could not be evaluated."""
    return f"no such key: {error.args[0]}" if isinstance(error, KeyError) else first_sentence(error)


def first_sentence(error: Exception) -> str:
    """What the library says of an error, without its advice."""
    return str(error).partition("\n")[0].partition(". ")[0]


def message_text(value: object) -> str:
    """The value of a `messageExpression` as a message; empty if it makes none."""
    text = value.strip() if isinstance(value, str) else ""
    return text if "\n" not in text and len(text) <= MESSAGE_MAX else ""


def _check_variables(used: Set[str], declared: Set[str]) -> None:
    for name in sorted(used - declared - NAMESPACES - TYPES - _OF_REWRITING):
        raise ExpressionError(f"compilation failed: undeclared reference to '{name}'")


def _check_functions(used: Set[str]) -> None:
    there = NATIVE | {name.rpartition(".")[2] for name in FUNCTIONS}
    for name in sorted(used - there):
        if name in NOT_IMPLEMENTED:
            raise UnsupportedExpressionError(f"the CEL function {name}")
        if name.isidentifier() and name.strip("_") == name:
            raise ExpressionError(f"compilation failed: undeclared reference to '{name}'")
