"""Decides whether rules and selectors of webhooks and policies choose a request. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.admission_request import KindVersion, Question
from gpuledger.local.kubeapi.strategies.core_shared import selects

EXACT = "Exact"

NamespaceLabels = Callable[[str], Mapping[str, str]]
"""The labels of a namespace, empty if it does not exist."""


def chosen(rules: Iterable[Object], match_policy: str | None, question: Question) -> Question | None:
    """The request in the version that the first fitting rule names; None if no rule fits."""
    every = tuple(rules)
    if any(_fits(rule, question.version, question) for rule in every):
        return question
    others = () if match_policy == EXACT else question.others
    return next((question.in_version(one) for rule in every for one in others if _fits(rule, one, question)), None)


def selects_namespace(
    selector: Object | None, question: Question, obj: Object | None, namespace_labels: NamespaceLabels
) -> bool:
    """Whether a selector chooses the namespace of a request. Requests for cluster resources are always chosen."""
    if not selector:
        return True
    if (question.version.group, question.version.plural) == ("", "namespaces"):
        return selects(selector, (obj or {}).get("metadata", {}).get("labels"))
    return not question.namespace or selects(selector, namespace_labels(question.namespace))


def selects_object(selector: Object | None, obj: Object | None, old: Object | None) -> bool:
    """Whether a selector chooses the object as it is or as it was."""
    objects = [one for one in (obj, old) if one is not None]
    return not selector or any(selects(selector, one.get("metadata", {}).get("labels")) for one in objects)


def _fits(rule: Mapping[str, Any], version: KindVersion, question: Question) -> bool:
    scope, names = rule.get("scope") or "*", rule.get("resourceNames")
    return (
        _has(rule.get("operations"), question.operation)
        and _has(rule.get("apiGroups"), version.group)
        and _has(rule.get("apiVersions"), version.version)
        and any(_is_resource(one, version.plural, question.subresource) for one in rule.get("resources") or ())
        and scope in {"*", "Namespaced" if question.is_namespaced else "Cluster"}
        and (not names or question.name in names)
    )


def _has(values: Iterable[str] | None, value: str) -> bool:
    return any(one in {"*", value} for one in values or ())


def _is_resource(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, sub = pattern.partition("/")
    return resource in {"*", plural} and (sub == subresource or (sub == "*" and "/" in pattern))
