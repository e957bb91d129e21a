"""Decides which admission webhooks a request calls, and in which order. Pure.

Requests for webhook configurations and policies call no webhook; otherwise nobody could repair a broken one.
"""

from collections.abc import Iterable, Iterator

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.admission_expressions import EvaluationError, conditions_hold, inputs_of
from gpuledger.local.kubeapi.admission_matching import NamespaceLabels, chosen, selects_namespace, selects_object
from gpuledger.local.kubeapi.admission_request import Question
from gpuledger.local.kubeapi.errors import denied

ADMISSION_GROUP = "admissionregistration.k8s.io"


def hooks_of(configurations: Iterable[Object]) -> list[Object]:
    """The webhooks of all configurations, in calling order."""
    return [
        hook
        for configuration in sorted(configurations, key=lambda one: str(one["metadata"]["name"]))
        for hook in configuration.get("webhooks") or ()
    ]


def matched_review(
    hook: Object,
    question: Question,
    obj: Object | None,
    old: Object | None,
    namespace_labels: NamespaceLabels,
) -> Question | None:
    """The request as a webhook is asked about it; None if it is not called.

    Raises:
        ApiError: 403, its match conditions fail and it fails closed.
    """
    if question.version.group == ADMISSION_GROUP:
        return None
    found = chosen(hook.get("rules") or (), hook.get("matchPolicy"), question)
    is_selected = (
        found is not None
        and selects_namespace(hook.get("namespaceSelector"), question, obj or old, namespace_labels)
        and selects_object(hook.get("objectSelector"), obj, old)
        and _conditions_hold(hook, found, obj, old)
    )
    return found if is_selected else None


def reinvocations(hooks: list[Object], ran: Iterable[int], changed: int) -> Iterator[int]:
    """The webhooks to call again after the one at `changed` has changed the object."""
    return (index for index in ran if index != changed and hooks[index].get("reinvocationPolicy") == "IfNeeded")


def _conditions_hold(hook: Object, question: Question, obj: Object | None, old: Object | None) -> bool:
    conditions = hook.get("matchConditions")
    if not conditions:
        return True
    try:
        return conditions_hold(conditions, inputs_of(question, obj, old), hook.get("failurePolicy"))
    except EvaluationError as error:
        version = question.requested or question.version
        raise denied(version.group, version.plural, question.name, f"match conditions: {error}") from error
