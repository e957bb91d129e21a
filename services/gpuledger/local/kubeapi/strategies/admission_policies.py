"""ValidatingAdmissionPolicies and their bindings: defaults, and validation of all that `policies` evaluates.

What is not evaluated here, such as parameters, is refused: a policy that is ignored would let through what it forbids.
"""

import re
from collections.abc import Iterator

from gpuledger.edge.kube.schema.causes import (
    Cause,
    Object,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from gpuledger.edge.kube.schema.cel_values import RESERVED
from gpuledger.edge.kube.schema.object_names import dns_subdomain_problem, qualified_name_problem
from gpuledger.local.kubeapi.policies import AUDIT, CODES, DENY, WARN
from gpuledger.local.kubeapi.resources import Strategy
from gpuledger.local.kubeapi.strategies.admission_shared import (
    BOOL,
    STRING,
    STRING_OR_NULL,
    choice_causes,
    condition_causes,
    expression_causes,
    rule_causes,
)
from gpuledger.local.kubeapi.strategies.core_shared import BuiltinStrategy, fill, part_of, selector_causes

ANNOTATIONS_MAX = 20
ACTIONS = (AUDIT, DENY, WARN)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NO_PARAMETERS = "the embedded API server does not evaluate parameters of policies"
_NOTHING = "validations or auditAnnotations must be non-empty"
_RULES = ("resourceRules", "excludeResourceRules")


class PolicyStrategy(BuiltinStrategy):
    """ValidatingAdmissionPolicies. The controller that checks types and writes the status does not run here."""

    updates_unconditionally = False
    status_on_create = {}

    def default(self, obj: Object) -> None:
        """Fill in defaults: fail closed, every namespace and object, every version of a resource."""
        spec = part_of(obj, "spec")
        fill(spec, {"failurePolicy": "Fail"})
        _default_match(spec.get("matchConstraints"))

    def validate(self, obj: Object) -> list[Cause]:
        """Check what is matched, and that every expression compiles over the variables that stand before it."""
        return list(_policy_causes(obj["spec"], "spec"))


class BindingStrategy(Strategy):
    """ValidatingAdmissionPolicyBindings."""

    updates_unconditionally = False

    def default(self, obj: Object) -> None:
        """Fill in the defaults of what is matched."""
        _default_match(part_of(obj, "spec").get("matchResources"))

    def validate(self, obj: Object) -> list[Cause]:
        """Check the actions and what is matched; the policy may come later."""
        return list(_binding_causes(obj["spec"], "spec"))


def _default_match(match: Object | None) -> None:
    if match is None:
        return
    fill(match, {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}})
    for rule in (rule for name in _RULES for rule in match.get(name) or ()):
        fill(rule, {"scope": "*"})


def _policy_causes(spec: Object, field: str) -> Iterator[Cause]:
    yield from choice_causes(spec, field, ("failurePolicy",))
    if spec.get("paramKind") is not None:
        yield forbidden(f"{field}.paramKind", _NO_PARAMETERS)
    match = spec.get("matchConstraints")
    if match is None:
        yield required(f"{field}.matchConstraints")
    else:
        yield from _match_causes(match, f"{field}.matchConstraints")
        if not match.get("resourceRules"):
            yield required(f"{field}.matchConstraints.resourceRules")
    yield from condition_causes(spec.get("matchConditions") or [], f"{field}.matchConditions")
    variables = spec.get("variables") or []
    yield from _variable_causes(variables, f"{field}.variables")
    names = frozenset(str(one.get("name")) for one in variables)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        yield required(f"{field}.validations", _NOTHING)
        yield required(f"{field}.auditAnnotations", _NOTHING)
    for index, one in enumerate(spec.get("validations") or ()):
        yield from _validation_causes(one, f"{field}.validations[{index}]", names)
    yield from _annotation_causes(spec.get("auditAnnotations") or [], f"{field}.auditAnnotations", names)


def _binding_causes(spec: Object, field: str) -> Iterator[Cause]:
    name = spec.get("policyName") or ""
    if not name:
        yield required(f"{field}.policyName")
    elif problem := dns_subdomain_problem(name):
        yield invalid(f"{field}.policyName", name, problem)
    if spec.get("paramRef") is not None:
        yield forbidden(f"{field}.paramRef", _NO_PARAMETERS)
    if spec.get("matchResources") is not None:
        yield from _match_causes(spec["matchResources"], f"{field}.matchResources")
    yield from _action_causes(spec.get("validationActions") or [], f"{field}.validationActions")


def _action_causes(actions: list[str], field: str) -> Iterator[Cause]:
    if not actions:
        yield required(field, "at least one validation action is required")
    for index, action in enumerate(actions):
        if action not in ACTIONS:
            yield not_supported(f"{field}[{index}]", action, ACTIONS)
        elif action in actions[:index]:
            yield duplicate(f"{field}[{index}]", action)
    if {DENY, WARN} <= set(actions):
        yield invalid(field, actions, f"must not contain both {DENY} and {WARN}: a refusal says what the warning would")


def _match_causes(match: Object, field: str) -> Iterator[Cause]:
    yield from choice_causes(match, field, ("matchPolicy",))
    for name in ("namespaceSelector", "objectSelector"):
        yield from selector_causes(match.get(name), f"{field}.{name}")
    for kind in _RULES:
        for index, rule in enumerate(match.get(kind) or ()):
            yield from _named_rule_causes(rule, f"{field}.{kind}[{index}]")


def _named_rule_causes(rule: Object, field: str) -> Iterator[Cause]:
    yield from rule_causes(rule, field)
    names = rule.get("resourceNames") or []
    for index, name in enumerate(names):
        if not name:
            yield required(f"{field}.resourceNames[{index}]")
        elif name in names[:index]:
            yield duplicate(f"{field}.resourceNames[{index}]", name)


def _variable_causes(variables: list[Object], field: str) -> Iterator[Cause]:
    names = [str(one.get("name") or "") for one in variables]
    for index, (one, name) in enumerate(zip(variables, names, strict=True)):
        at, before = f"{field}[{index}]", frozenset(names[:index])
        if not name:
            yield required(f"{at}.name", "name is not specified")
        elif not _IDENTIFIER.fullmatch(name) or name in RESERVED:
            yield invalid(f"{at}.name", name, "name is not a valid CEL identifier")
        elif name in before:
            yield duplicate(f"{at}.name", name)
        yield from expression_causes(one.get("expression"), f"{at}.expression", None, before)


def _validation_causes(one: Object, field: str, names: frozenset[str]) -> Iterator[Cause]:
    yield from expression_causes(one.get("expression"), f"{field}.expression", BOOL, names)
    if one.get("messageExpression"):
        yield from expression_causes(one["messageExpression"], f"{field}.messageExpression", STRING, names)
    message = one.get("message")
    if message and not message.strip():
        yield invalid(f"{field}.message", message, "message must be non-empty if specified")
    elif message and "\n" in message.strip():
        yield invalid(f"{field}.message", message, "message must not contain line breaks")
    if one.get("reason") is not None and one["reason"] not in CODES:
        yield not_supported(f"{field}.reason", one["reason"], CODES)


def _annotation_causes(annotations: list[Object], field: str, names: frozenset[str]) -> Iterator[Cause]:
    if len(annotations) > ANNOTATIONS_MAX:
        yield too_many(field, len(annotations), ANNOTATIONS_MAX)
    keys = [one.get("key") or "" for one in annotations]
    for index, (one, key) in enumerate(zip(annotations, keys, strict=True)):
        at = f"{field}[{index}]"
        yield from expression_causes(one.get("valueExpression"), f"{at}.valueExpression", STRING_OR_NULL, names)
        if not key:
            yield required(f"{at}.key")
        elif problem := qualified_name_problem(key):
            yield invalid(f"{at}.key", key, problem)
        elif key in keys[:index]:
            yield duplicate(f"{at}.key", key)
