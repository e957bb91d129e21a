"""Compiles and evaluates the CEL expressions of admission: match conditions, and all that policies consist of. Pure.

A policy's variable is evaluated when an expression that is evaluated needs it, and once for each request.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from gpuledger.domain.cel_source import bound_names, mentions, selections, with_calls
from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.expressions import (
    FAILURES,
    Expression,
    ExpressionError,
    Scope,
    UnsupportedExpressionError,
    compiled_over,
    failure_text,
)
from gpuledger.local.kubeapi.admission_request import Question, request_of

COMPILED_MAX = 512
"""The size of the cache of compiled expressions."""

VARIABLES: Final = "variables"
_LOOKUP: Final = "policyVariable"
_DECLARED: Final = frozenset({"object", "oldObject", "request", "namespaceObject"})
_KIND: Final = dict.fromkeys(("group", "version", "kind"))
_RESOURCE: Final = dict.fromkeys(("group", "version", "resource"))
_SHOWN_OF_NAMESPACE: Final = {
    "metadata": (
        *("name", "generateName", "namespace", "labels", "annotations", "uid", "creationTimestamp"),
        *("deletionGracePeriodSeconds", "deletionTimestamp", "generation", "resourceVersion", "finalizers"),
    ),
    "spec": ("finalizers",),
    "status": ("phase",),
}
_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "request": {
        **dict.fromkeys(("name", "namespace", "operation", "subResource", "requestSubResource", "dryRun", "options")),
        **dict.fromkeys(("kind", "requestKind"), _KIND),
        **dict.fromkeys(("resource", "requestResource"), _RESOURCE),
        "userInfo": dict.fromkeys(("username", "uid", "groups", "extra")),
    },
    "namespaceObject": {part: dict.fromkeys(names) for part, names in _SHOWN_OF_NAMESPACE.items()},
}
"""The fields of variables that have a type; None is a field of any content."""


class EvaluationError(Exception):
    """An expression could not be evaluated, or match conditions could not."""


@lru_cache(maxsize=COMPILED_MAX)
def admission_expression(text: str, variables: frozenset[str] = frozenset()) -> Expression:
    """An expression that may use these variables of a policy.

    Raises:
        ExpressionError: it does not compile, or uses something else.
    """
    if mentions(text, "authorizer"):
        raise UnsupportedExpressionError("the CEL variable authorizer")
    if VARIABLES in bound_names(text):
        raise UnsupportedExpressionError(f"macros that bind the name {VARIABLES}")
    for name, *fields in selections(text, {VARIABLES, *_FIELDS}):
        _check_fields(fields, dict.fromkeys(variables) if name == VARIABLES else _FIELDS[name])
    return compiled_over(with_calls(text, VARIABLES, _LOOKUP), _DECLARED, more={_LOOKUP})


def constant_of(expression: Expression) -> tuple[Any, bool]:
    """The value of an expression that depends on nothing, and whether there is one."""
    if expression.program.variables() or _LOOKUP in expression.program.functions():
        return None, False
    try:
        return expression.value({}), True
    except FAILURES:
        return None, False


def inputs_of(question: Question, obj: Object | None, old: Object | None, namespace: Object | None = None) -> Object:
    """What expressions see of a request. `namespace` is that of the object."""
    request = request_of(question, "", obj, old)
    del request["uid"]
    return {
        "object": request.pop("object"),
        "oldObject": request.pop("oldObject"),
        "request": request,
        "namespaceObject": None if namespace is None else _shown(namespace),
    }


class Evaluation:
    """Evaluates expressions on one request, with a policy's variables."""

    def __init__(self, inputs: Object, variables: Sequence[Object] = ()) -> None:
        self._scope = Scope(inputs, {_LOOKUP: self._variable})
        self._texts = {one["name"]: one["expression"] for one in variables}
        self._names = frozenset(self._texts)
        self._values: dict[str, list[Any]] = {}
        self._failures: dict[str, str] = {}

    def value(self, text: str) -> Any:
        """The value of an expression.

        Raises:
            EvaluationError: it has none.
        """
        try:
            return self._scope.value(admission_expression(text, self._names))
        except ExpressionError as error:
            raise EvaluationError(str(error)) from error
        except FAILURES as error:
            raise EvaluationError(f"expression '{text}' resulted in error: {self._reason(text, error)}") from error

    def _variable(self, name: str) -> list[Any]:
        """The variable's value as the only item; none if it has no value, so that its use fails in the expression."""
        if name not in self._values:
            try:
                self._values[name] = [self.value(self._texts[name])]
            except EvaluationError as error:
                self._values[name] = []
                self._failures[name] = f'composited variable "{name}" fails to evaluate: {error}'
        return self._values[name]

    def _reason(self, text: str, error: Exception) -> str:
        used = (fields[0] for _, *fields in selections(text, {VARIABLES}))
        return next((self._failures[name] for name in used if name in self._failures), failure_text(error))


def conditions_hold(conditions: Iterable[Object], inputs: Object, failure_policy: str | None) -> bool:
    """Whether match conditions hold. One that does not hold outweighs others that fail.

    Raises:
        EvaluationError: one cannot be evaluated, and the policy is not `Ignore`.
    """
    evaluation, failures = Evaluation(inputs), list[str]()
    for one in conditions:
        text = one.get("expression") or ""
        try:
            value = evaluation.value(text)
        except EvaluationError as error:
            failures.append(str(error))
            continue
        if value is False:
            return False
        if value is not True:
            failures.append(f"{text}: it is no boolean")
    if failures and failure_policy != "Ignore":
        raise EvaluationError(", ".join(failures))
    return not failures


def _check_fields(fields: Iterable[str], tree: Mapping[str, Any]) -> None:
    at: Mapping[str, Any] | None = tree
    for name in fields:
        if at is None:
            return
        if name not in at:
            raise ExpressionError(f"compilation failed: undefined field '{name}'")
        at = at[name]


def _shown(namespace: Object) -> Object:
    return {
        part: {name: value for name, value in (namespace.get(part) or {}).items() if name in names}
        for part, names in _SHOWN_OF_NAMESPACE.items()
    }
