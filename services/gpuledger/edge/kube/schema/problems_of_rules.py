"""Checks the rules and the defaults of a schema that is otherwise valid.

Rules must compile, refer to existing fields, and use `oldSelf` only where there can be an older value. Defaults must be
valid by their own schema.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpuledger.domain.cel_source import mentions
from gpuledger.edge.kube.schema.causes import Cause, invalid, not_supported, required
from gpuledger.edge.kube.schema.correlation import ABSENT
from gpuledger.edge.kube.schema.expressions import ExpressionError, UnsupportedExpressionError
from gpuledger.edge.kube.schema.lists import repeated_items
from gpuledger.edge.kube.schema.rules import REASONS, compiled
from gpuledger.edge.kube.schema.structural import SchemaNode
from gpuledger.edge.kube.schema.values import ValuePlace, problems_of_value

_RULES = "x-kubernetes-validations"
_NAMES = re.compile(r"\['([^']+)'\]|\.([A-Za-z_$][\w$-]*)")


def rule_problems(node: SchemaNode, path: str, *, whole: bool = True, correlatable: bool = True) -> Iterator[Cause]:
    """The problems of all rules below a node; `correlatable` means that it has older values."""
    for index, raw in enumerate(node.rules):
        yield from _of_rule(raw, node, f"{path}.{_RULES}[{index}]", whole=whole, correlatable=correlatable)
    for name, one in node.properties.items():
        yield from rule_problems(one, f"{path}.properties[{name}]", whole=False, correlatable=correlatable)
    if node.additional:
        yield from rule_problems(
            node.additional, f"{path}.additionalProperties", whole=False, correlatable=correlatable
        )
    if node.items:
        keyed = correlatable and node.list_type == "map"
        yield from rule_problems(node.items, f"{path}.items", whole=False, correlatable=keyed)


def default_problems(node: SchemaNode, path: str) -> Iterator[Cause]:
    """Defaults that are invalid by their own schema."""
    if node.default is not None:
        field = f"{path}.default"
        yield from problems_of_value(node.default, node, ValuePlace(field, field), ABSENT)
        yield from repeated_items(node.default, node, field)
        if _unknown(node.default, node):
            yield invalid(field, node.default, "must not have unknown fields")
    for name, one in node.properties.items():
        yield from default_problems(one, f"{path}.properties[{name}]")
    if node.additional:
        yield from default_problems(node.additional, f"{path}.additionalProperties")
    if node.items:
        yield from default_problems(node.items, f"{path}.items")


def _of_rule(
    raw: Mapping[str, Any], node: SchemaNode, path: str, *, whole: bool, correlatable: bool
) -> Iterator[Cause]:
    text = str(raw.get("rule") or "")
    if not text.strip():
        yield required(f"{path}.rule", "rule is not specified")
        return
    yield from _compiles(text, node, f"{path}.rule", whole=whole)
    yield from _of_old(raw, text, path, correlatable=correlatable)
    yield from _of_message(raw, node, path, whole=whole)
    if raw.get("reason") and raw["reason"] not in REASONS:
        yield not_supported(f"{path}.reason", raw["reason"], REASONS)
    if raw.get("fieldPath") and not _leads_somewhere(str(raw["fieldPath"]), node):
        message = "fieldPath must be a valid path: it does not refer to a field of the schema"
        yield invalid(f"{path}.fieldPath", raw["fieldPath"], message)


def _of_old(raw: Mapping[str, Any], text: str, path: str, *, correlatable: bool) -> Iterator[Cause]:
    uses_old = mentions(text, "oldSelf")
    if uses_old and not correlatable and raw.get("optionalOldSelf") is None:
        message = "oldSelf cannot be used on the uncorrelatable portion of the schema"
        yield invalid(f"{path}.rule", text, message)
    if raw.get("optionalOldSelf") is not None and not uses_old:
        message = "option is not allowed when rule does not reference oldSelf"
        yield invalid(f"{path}.optionalOldSelf", raw["optionalOldSelf"], message)


def _of_message(raw: Mapping[str, Any], node: SchemaNode, path: str, *, whole: bool) -> Iterator[Cause]:
    message = raw.get("message")
    if message and not str(message).strip():
        yield invalid(f"{path}.message", message, "message must be non-empty if specified")
    elif message and "\n" in str(message).strip():
        yield invalid(f"{path}.message", message, "message must not contain line breaks")
    if "\n" in str(raw["rule"]).strip() and not message:
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    if raw.get("messageExpression"):
        yield from _compiles(str(raw["messageExpression"]), node, f"{path}.messageExpression", whole=whole)


def _compiles(text: str, node: SchemaNode, field: str, *, whole: bool) -> Iterator[Cause]:
    try:
        compiled(text, node, whole=whole)
    except UnsupportedExpressionError:
        raise
    except ExpressionError as error:
        yield invalid(field, text, str(error))


def _leads_somewhere(path: str, node: SchemaNode) -> bool:
    names = [quoted or plain for quoted, plain in _NAMES.findall(path)]
    if not names or _NAMES.sub("", path):
        return False
    at: SchemaNode | None = node
    for name in names:
        at = (at.properties.get(name) or at.additional) if at else None
    return at is not None


def _unknown(value: object, node: SchemaNode) -> bool:
    if isinstance(value, list):
        return any(_unknown(one, node.items) for one in value) if node.items else False
    if not isinstance(value, dict) or node.preserves or node.open or not node.type:
        return False
    resource_fields = {"apiVersion", "kind", "metadata"} if node.embedded else set()
    for name, one in value.items():
        child = node.properties.get(name) or node.additional
        if (child is None and name not in resource_fields) or (child is not None and _unknown(one, child)):
            return True
    return False
