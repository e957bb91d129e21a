"""Decides which admission webhooks a request calls: rules, selectors and match conditions. Pure.

Requests for webhook configurations call no webhook; otherwise nobody could repair a broken one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import cel

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.errors import ApiError, denied
from gpuledger.local.kubeapi.strategies.core_shared import selects

ADMISSION_GROUP = "admissionregistration.k8s.io"
CONDITIONS_COMPILED_MAX = 256

NamespaceLabels = Callable[[str], Mapping[str, str]]
"""The labels of a namespace, empty if it does not exist."""


class KindVersion(NamedTuple):
    """One version of a resource, as a rule may name it."""

    group: str
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        """As objects write it."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True)
class Question:
    """A request for admission. `operation` is CREATE, UPDATE or DELETE; `options` are those of the request."""

    operation: str
    version: KindVersion
    name: str
    namespace: str = ""
    subresource: str = ""
    is_namespaced: bool = True
    user: Object = field(default_factory=dict)
    options: Object = field(default_factory=dict)

    @property
    def dry_run(self) -> bool:
        """Whether the request stores nothing."""
        return bool(self.options.get("dryRun"))


def hooks_of(configurations: Iterable[Object]) -> list[Object]:
    """The webhooks of all configurations, in calling order."""
    return [
        hook
        for configuration in sorted(configurations, key=lambda one: str(one["metadata"]["name"]))
        for hook in configuration.get("webhooks") or ()
    ]


def applies(
    hook: Object,
    question: Question,
    obj: Object | None,
    old: Object | None,
    namespace_labels: NamespaceLabels,
) -> bool:
    """Whether a request calls a webhook.

    Raises:
        ApiError: 403, its match conditions fail and it fails closed.
    """
    return (
        question.version.group != ADMISSION_GROUP
        and any(_fits(rule, question) for rule in hook.get("rules") or ())
        and _selects_namespace(hook, question, obj or old, namespace_labels)
        and _selects_object(hook, obj, old)
        and _conditions_hold(hook, question, obj, old)
    )


def request_of(question: Question, uid: str, obj: Object | None, old: Object | None) -> Object:
    """The `request` of an AdmissionReview."""
    version = question.version
    place = {"group": version.group, "version": version.version}
    kind, resource = place | {"kind": version.kind}, place | {"resource": version.plural}
    kinds: Object = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
    }
    if question.subresource:
        kinds |= {"subResource": question.subresource, "requestSubResource": question.subresource}
    names = {"name": question.name, "namespace": question.namespace}
    return {
        **kinds,
        **{key: value for key, value in names.items() if value},
        "operation": question.operation,
        "userInfo": question.user,
        "object": _in_version(obj, version),
        "oldObject": _in_version(old, version),
        "dryRun": question.dry_run,
        "options": question.options or None,
    }


def _in_version(obj: Object | None, version: KindVersion) -> Object | None:
    if obj is None:
        return None
    return {**obj, "kind": obj.get("kind") or version.kind, "apiVersion": version.api_version}


def _fits(rule: Mapping[str, Any], question: Question) -> bool:
    scope, version = rule.get("scope") or "*", question.version
    return (
        _has(rule.get("operations"), question.operation)
        and _has(rule.get("apiGroups"), version.group)
        and _has(rule.get("apiVersions"), version.version)
        and any(_is_resource(one, version.plural, question.subresource) for one in rule.get("resources") or ())
        and scope in {"*", "Namespaced" if question.is_namespaced else "Cluster"}
    )


def _has(values: Iterable[str] | None, value: str) -> bool:
    return any(one in {"*", value} for one in values or ())


def _is_resource(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, sub = pattern.partition("/")
    return resource in {"*", plural} and (sub == subresource or (sub == "*" and "/" in pattern))


def _selects_namespace(hook: Object, question: Question, obj: Object | None, namespace_labels: NamespaceLabels) -> bool:
    selector = hook.get("namespaceSelector") or {}
    if (question.version.group, question.version.plural) == ("", "namespaces"):
        return selects(selector, (obj or {}).get("metadata", {}).get("labels"))
    return not question.namespace or not selector or selects(selector, namespace_labels(question.namespace))


def _selects_object(hook: Object, obj: Object | None, old: Object | None) -> bool:
    selector = hook.get("objectSelector") or {}
    objects = [one for one in (obj, old) if one is not None]
    return not selector or any(selects(selector, one.get("metadata", {}).get("labels")) for one in objects)


def _conditions_hold(hook: Object, question: Question, obj: Object | None, old: Object | None) -> bool:
    conditions = hook.get("matchConditions") or ()
    if not conditions:
        return True
    request = request_of(question, "", obj, old)
    variables = {"object": request.pop("object"), "oldObject": request.pop("oldObject"), "request": request}
    results = [_holds(condition.get("expression") or "", variables) for condition in conditions]
    if any(result is False for result in results):
        return False
    failure = next((result for result in results if isinstance(result, str)), None)
    if failure and hook.get("failurePolicy") != "Ignore":
        raise _unevaluated(question, failure)
    return failure is None


def _holds(expression: str, variables: Object) -> bool | str:
    try:
        result = _program(expression).execute(variables)
    except (ValueError, TypeError, RuntimeError, LookupError, ArithmeticError, AttributeError) as error:
        return f"{expression}: {error}"
    return result if isinstance(result, bool) else f"{expression}: it is no boolean"


@lru_cache(maxsize=CONDITIONS_COMPILED_MAX)
def _program(expression: str) -> Any:
    return cel.compile(expression)


def _unevaluated(question: Question, failure: str) -> ApiError:
    return denied(question.version.group, question.version.plural, question.name, f"match conditions: {failure}")


def reinvocations(hooks: list[Object], ran: Iterable[int], changed: int) -> Iterator[int]:
    """The webhooks to call again after the one at `changed` has changed the object."""
    return (index for index in ran if index != changed and hooks[index].get("reinvocationPolicy") == "IfNeeded")
