"""Checks what webhooks and policies have in common: rules, match conditions and CEL expressions."""

from collections.abc import Iterable, Iterator, Mapping

from gpuledger.edge.kube.schema.causes import Cause, Object, duplicate, invalid, not_supported, required, too_many
from gpuledger.edge.kube.schema.expressions import ExpressionError, UnsupportedExpressionError
from gpuledger.edge.kube.schema.object_names import qualified_name_problem
from gpuledger.local.kubeapi.admission_expressions import admission_expression, constant_of

CONDITIONS_MAX = 64
OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
SCOPES = ("*", "Cluster", "Namespaced")
CHOICES = {"failurePolicy": ("Fail", "Ignore"), "matchPolicy": ("Equivalent", "Exact")}

Types = Mapping[str, type]
"""What an expression must evaluate to: the names of CEL's types, and those of Python."""

BOOL: Types = {"bool": bool}
STRING: Types = {"string": str}
STRING_OR_NULL: Types = {"string": str, "null_type": type(None)}

_OF_RULES = ("operations", "apiGroups", "apiVersions", "resources")


def choice_causes(obj: Object, field: str, choices: Iterable[str] = tuple(CHOICES)) -> Iterator[Cause]:
    """Settings whose values are not supported."""
    for name in choices:
        if obj.get(name) is not None and obj[name] not in CHOICES[name]:
            yield not_supported(f"{field}.{name}", obj[name], CHOICES[name])


def rule_causes(rule: Object, field: str) -> Iterator[Cause]:
    """Everything wrong with a rule."""
    for name in _OF_RULES:
        values = rule.get(name) or []
        if not values:
            yield required(f"{field}.{name}")
        elif "*" in values and len(values) > 1 and name != "resources":
            yield invalid(f"{field}.{name}", values, f"if '*' is present, must not specify other {name}")
    for index, operation in enumerate(rule.get("operations") or ()):
        if operation not in OPERATIONS:
            yield not_supported(f"{field}.operations[{index}]", operation, OPERATIONS)
    if rule.get("scope") is not None and rule["scope"] not in SCOPES:
        yield not_supported(f"{field}.scope", rule["scope"], SCOPES)


def condition_causes(conditions: list[Object], field: str) -> Iterator[Cause]:
    """Everything wrong with match conditions."""
    if len(conditions) > CONDITIONS_MAX:
        yield too_many(field, len(conditions), CONDITIONS_MAX)
    names = [one.get("name") or "" for one in conditions]
    for index, (one, name) in enumerate(zip(conditions, names, strict=True)):
        at = f"{field}[{index}]"
        yield from expression_causes(one.get("expression"), f"{at}.expression", BOOL)
        if not name:
            yield required(f"{at}.name")
        elif problem := qualified_name_problem(name):
            yield invalid(f"{at}.name", name, problem)
        elif name in names[:index]:
            yield duplicate(f"{at}.name", name)


def expression_causes(
    text: str | None, field: str, types: Types | None, variables: frozenset[str] = frozenset()
) -> Iterator[Cause]:
    """Why an expression over a request cannot be evaluated; `types` None accepts a value of any type."""
    if not text or not text.strip():
        yield required(field, f"{field.rpartition('.')[2]} is not specified")
        return
    try:
        value, is_constant = constant_of(admission_expression(text, variables))
    except UnsupportedExpressionError as error:
        yield invalid(field, text, f"the embedded API server does not implement {error}")
    except ExpressionError as error:
        yield invalid(field, text, str(error))
    else:
        if types and is_constant and not isinstance(value, tuple(types.values())):
            yield invalid(field, text, f"must evaluate to {' or '.join(types)}")
