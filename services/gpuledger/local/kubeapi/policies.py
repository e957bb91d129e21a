"""Evaluates ValidatingAdmissionPolicies on a request, with the bindings that put them in force. Pure.

Policies never change an object. Requests for policies and bindings are exempt; otherwise nobody could repair a broken
one. Each binding of a policy evaluates it anew.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.expressions import message_text
from gpuledger.local.kubeapi.admission_expressions import Evaluation, EvaluationError, conditions_hold, inputs_of
from gpuledger.local.kubeapi.admission_matching import chosen, selects_namespace, selects_object
from gpuledger.local.kubeapi.admission_request import Question
from gpuledger.local.kubeapi.errors import UNPROCESSABLE, ApiError, denied

DENY, WARN, AUDIT = "Deny", "Warn", "Audit"
INVALID = "Invalid"
CODES = {"Unauthorized": 401, "Forbidden": 403, INVALID: UNPROCESSABLE, "RequestEntityTooLarge": 413}
"""The reasons that a validation may give, and their status codes."""

NAMESPACE_KEY = ("", "namespaces")

Namespaces = Callable[[str], Object | None]
"""Finds a namespace by its name."""


@dataclass(frozen=True)
class Review:
    """A request, with its objects as the policies see them."""

    question: Question
    obj: Object | None
    old: Object | None
    namespaces: Namespaces

    def labels(self, namespace: str) -> dict[str, str]:
        """The labels of a namespace, empty if it does not exist."""
        found: dict[str, str] = ((self.namespaces(namespace) or {}).get("metadata") or {}).get("labels") or {}
        return found

    @property
    def namespace(self) -> Object | None:
        """The object's namespace; a namespace is in none."""
        name, version = self.question.namespace, self.question.version
        return self.namespaces(name) if name and (version.group, version.plural) != NAMESPACE_KEY else None


class Failure(NamedTuple):
    """A validation that failed or could not be evaluated. `is_denied` means whatever the binding's actions are."""

    message: str
    reason: str = INVALID
    is_denied: bool = False


class Outcome(NamedTuple):
    """What all policies say of a request: the first refusal, and warnings."""

    refusal: ApiError | None
    warnings: list[str]


def outcome_of(policies: Iterable[Object], bindings: Iterable[Object], review: Review) -> Outcome:
    """Evaluate all policies that are bound, in the order of names."""
    refusal, warnings, every = None, list[str](), sorted(bindings, key=_name)
    for policy in sorted(policies, key=_name):
        bound = [one for one in every if one["spec"]["policyName"] == _name(policy)]
        question = _matched(policy["spec"]["matchConstraints"], review) if bound else None
        if question is None:
            continue
        for binding in bound:
            if _matched(binding["spec"].get("matchResources") or {}, review) is None:
                continue
            for failure in failures_of(policy["spec"], question, review):
                actions, where = binding["spec"]["validationActions"], (_name(policy), _name(binding))
                if DENY in actions or failure.is_denied:
                    refusal = refusal or _refusal(review.question, failure, *where)
                if WARN in actions and not failure.is_denied:
                    warnings.append(_warning(failure, *where))
    return Outcome(refusal, warnings)


def failures_of(spec: Object, question: Question, review: Review) -> Iterator[Failure]:
    """What a policy finds wrong with a request that it matches. `question` is in the version that its rules name."""
    is_closed = spec.get("failurePolicy") != "Ignore"
    conditions = spec.get("matchConditions") or ()
    try:
        if not conditions_hold(conditions, inputs_of(question, review.obj, review.old), spec.get("failurePolicy")):
            return
    except EvaluationError as error:
        yield Failure(str(error))
        return
    inputs = inputs_of(question, review.obj, review.old, review.namespace)
    evaluation = Evaluation(inputs, spec.get("variables") or ())
    for validation in spec.get("validations") or ():
        try:
            holds = evaluation.value(validation["expression"]) is True
        except EvaluationError as error:
            if is_closed:
                yield Failure(str(error))
            continue
        if not holds:
            yield Failure(_message(validation, evaluation), validation.get("reason") or INVALID)
    if is_closed:
        yield from _annotation_failures(spec, evaluation)


def _annotation_failures(spec: Object, evaluation: Evaluation) -> Iterator[Failure]:
    """There is no audit log, but an annotation that cannot be made refuses the request."""
    for one in spec.get("auditAnnotations") or ():
        text = one["valueExpression"]
        try:
            value = evaluation.value(text)
        except EvaluationError as error:
            yield Failure(str(error), is_denied=True)
            continue
        if value is not None and not isinstance(value, str):
            yield Failure(f"valueExpression '{text}' must return a string or null", is_denied=True)


def _message(validation: Object, evaluation: Evaluation) -> str:
    if expression := validation.get("messageExpression"):
        with suppress(EvaluationError):
            if text := message_text(evaluation.value(expression)):
                return text
    return (validation.get("message") or "").strip() or f"failed expression: {validation['expression'].strip()}"


def _matched(match: Object, review: Review) -> Question | None:
    """The request in the version that a `MatchResources` names; None if it does not match."""
    question, policy, rules = review.question, match.get("matchPolicy"), match.get("resourceRules")
    is_out = (
        not selects_namespace(match.get("namespaceSelector"), question, review.obj or review.old, review.labels)
        or not selects_object(match.get("objectSelector"), review.obj, review.old)
        or chosen(match.get("excludeResourceRules") or (), policy, question) is not None
    )
    if is_out:
        return None
    return chosen(rules, policy, question) if rules else question


def _refusal(question: Question, failure: Failure, policy: str, binding: str) -> ApiError:
    message = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {failure.message}"
    error = denied(question.version.group, question.version.plural, question.name, message)
    details = {**(error.details or {}), "causes": [{"message": message}]}
    return ApiError(CODES[failure.reason], failure.reason, error.message, details)


def _warning(failure: Failure, policy: str, binding: str) -> str:
    return f"Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {failure.message}"


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])
