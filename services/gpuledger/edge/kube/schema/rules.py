"""Compiles and evaluates a schema's `x-kubernetes-validations`, the CEL rules of custom resources.

A rule that uses `oldSelf` runs only if there was a value before; an update runs other rules only for changed values.
The number of runs bounds evaluation, instead of Kubernetes' cost model.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import cel

from gpuledger.domain.cel_source import mentions, selections
from gpuledger.edge.kube.schema.causes import Cause
from gpuledger.edge.kube.schema.cel_values import cel_name, cel_value, in_order_of
from gpuledger.edge.kube.schema.correlation import ABSENT, old_field, old_items
from gpuledger.edge.kube.schema.equality import same
from gpuledger.edge.kube.schema.expressions import FAILURES, Expression, ExpressionError, compiled_over, message_text
from gpuledger.edge.kube.schema.structural import SchemaNode

RUNS_MAX = 100_000
"""The maximum number of evaluations for one object."""

OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"

_PREFIXES = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}
REASONS = tuple(_PREFIXES)
_VARIABLES = frozenset({"self", "oldSelf"})
_ROOT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


class Rule(NamedTuple):
    """One rule. `below` is its `fieldPath`."""

    text: str
    expression: Expression
    uses_old: bool
    takes_absent_old: bool
    message: str
    message_expression: Expression | None
    reason: str
    below: str


@dataclass(slots=True)
class RuleTree:
    """The rules of a schema, with only those branches that have any."""

    node: SchemaNode
    whole: bool = False
    rules: tuple[Rule, ...] = ()
    fields: dict[str, "RuleTree"] = field(default_factory=dict)
    values: "RuleTree | None" = None
    items: "RuleTree | None" = None


def compiled(text: str, node: SchemaNode, *, whole: bool = False) -> Expression:
    """An expression over `self`; raises ExpressionError if it does not compile."""
    expression = compiled_over(text, _VARIABLES)
    _check_selections(text, node, whole=whole)
    return expression


def rule_of(raw: Mapping[str, Any], node: SchemaNode, *, whole: bool = False) -> Rule:
    """A rule of a schema; raises ExpressionError if it does not compile."""
    text = str(raw.get("rule") or "")
    expression = raw.get("messageExpression")
    return Rule(
        text=text,
        expression=compiled(text, node, whole=whole),
        uses_old=mentions(text, "oldSelf"),
        takes_absent_old=raw.get("optionalOldSelf") is True,
        message=str(raw.get("message") or "").strip(),
        message_expression=compiled(str(expression), node, whole=whole) if expression else None,
        reason=str(raw.get("reason") or "FieldValueInvalid"),
        below=str(raw.get("fieldPath") or ""),
    )


def rules_of(node: SchemaNode, *, whole: bool = True) -> RuleTree | None:
    """The rules of a schema that compile; None if there are none."""
    tree = RuleTree(node, whole=whole, rules=tuple(_rules(node, whole=whole)))
    branches = {name: rules_of(one, whole=False) for name, one in node.properties.items()}
    tree.fields = {name: branch for name, branch in branches.items() if branch}
    tree.values = rules_of(node.additional, whole=False) if node.additional else None
    tree.items = rules_of(node.items, whole=False) if node.items else None
    return tree if tree.rules or tree.fields or tree.values or tree.items else None


def broken_rules(value: object, tree: RuleTree, old: object = ABSENT) -> list[Cause]:
    """The causes for which rules refuse a value that is valid by its schema."""
    causes: list[Cause] = []
    for runs, cause in enumerate(_broken(value, tree, old, ""), 1):
        if cause is not None:
            causes.append(cause)
        if runs >= RUNS_MAX:
            return [*causes, Cause("FieldValueInvalid", f"Invalid value: {OUT_OF_BUDGET}", "<nil>")]
    return causes


def _rules(node: SchemaNode, *, whole: bool) -> Iterator[Rule]:
    for raw in node.rules:
        try:
            yield rule_of(raw, node, whole=whole)
        except ExpressionError:
            continue


def _check_selections(text: str, node: SchemaNode, *, whole: bool) -> None:
    for chain in selections(text, _VARIABLES):
        at: SchemaNode | None = node
        root = whole
        for name in chain[1:]:
            if at is None or not (at.properties or root or at.embedded) or at.additional or at.preserves:
                break
            if (root or at.embedded) and name in _ROOT_FIELDS:
                break
            below = {cel_name(one): child for one, child in at.properties.items()}
            if name not in below:
                raise ExpressionError(f"compilation failed: undefined field '{name}'")
            at, root = below[name], False


def _broken(value: object, tree: RuleTree, old: object, path: str) -> Iterator[Cause | None]:
    """One item for each evaluation, so that they can be counted."""
    if value is None:
        return
    if tree.rules:
        yield from _broken_here(value, tree, old, path)
    if isinstance(value, dict):
        for name, one in value.items():
            if branch := tree.fields.get(name):
                yield from _broken(one, branch, old_field(old, name), f"{path}.{name}" if path else name)
            elif tree.values and name not in tree.node.properties:
                yield from _broken(one, tree.values, old_field(old, name), f"{path}[{name}]")
    elif isinstance(value, list) and tree.items:
        for index, (one, before) in enumerate(zip(value, old_items(old, value, tree.node), strict=True)):
            yield from _broken(one, tree.items, before, f"{path}[{index}]")


def _broken_here(value: object, tree: RuleTree, old: object, path: str) -> Iterator[Cause | None]:
    if old is None:
        old = ABSENT
    unchanged = old is not ABSENT and same(value, old)
    variables = {"self": cel_value(value, tree.node, whole=tree.whole)}
    before = None if old is ABSENT else cel_value(in_order_of(old, value, tree.node), tree.node, whole=tree.whole)
    for rule in tree.rules:
        if rule.uses_old:
            if old is ABSENT and not rule.takes_absent_old:
                continue
            yield _outcome(rule, variables | {"oldSelf": _old_self(rule, old, before)}, path)
        elif not unchanged:
            yield _outcome(rule, variables, path)


def _old_self(rule: Rule, old: object, before: object) -> object:
    if not rule.takes_absent_old:
        return before
    return cel.OptionalValue.none() if old is ABSENT else cel.OptionalValue.of(before)


def _outcome(rule: Rule, variables: dict[str, Any], path: str) -> Cause | None:
    try:
        kept = rule.expression.value(variables)
    except FAILURES as error:
        return _cause("FieldValueInvalid", f"{error} evaluating rule: {rule.message or rule.text}", path)
    if kept is True:
        return None
    return _cause(rule.reason, _message(rule, variables), path + _spelt(rule.below))


def _message(rule: Rule, variables: dict[str, Any]) -> str:
    if rule.message_expression:
        try:
            message = cast("object", rule.message_expression.value(variables))
        except FAILURES:
            message = None
        if text := message_text(message):
            return text
    return rule.message or f"failed rule: {rule.text.strip()}"


def _cause(reason: str, message: str, path: str) -> Cause:
    prefix = _PREFIXES.get(reason, "Invalid value")
    return Cause(reason, f"{prefix}: {message}", path.removeprefix(".") or "<nil>")


def _spelt(below: str) -> str:
    """A `fieldPath` in the notation of causes: names in brackets lose their quotes."""
    return below.replace("['", "[").replace("']", "]")
