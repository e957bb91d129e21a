"""Whether the spec of a pod holds up, be it a pod's own or a workload's template.

What needs other objects to decide (does the service account, the claim, the node exist?) is not asked here.
"""

from collections.abc import Iterable, Iterator

from gpuledger.edge.kube.schema.causes import Cause, Object, duplicate, forbidden, invalid, not_supported, required
from gpuledger.edge.kube.schema.object_names import (
    dns_label_problem,
    dns_subdomain_problem,
    label_value_problem,
    qualified_name_problem,
)
from gpuledger.local.kubeapi.metadata import validate_labels
from gpuledger.local.kubeapi.strategies.core_containers import containers_causes
from gpuledger.local.kubeapi.strategies.core_resources import requirement_causes
from gpuledger.local.kubeapi.strategies.core_shared import at, at_least, one_of, selector_causes
from gpuledger.local.kubeapi.strategies.core_volumes import named_causes, volume_causes

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION_OPERATORS = ("Equal", "Exists", "Lt", "Gt")
DEADLINE_MAX_S = 2**31 - 1
_SUBDOMAINS = ("nodeName", "serviceAccountName", "schedulerName", "priorityClassName", "runtimeClassName")
_LABEL_NAMES = ("hostname", "subdomain")


def pod_causes(pod: Object, *, updating: bool = False) -> Iterator[Cause]:
    """What is wrong with a pod."""
    spec = at(pod, "spec")
    yield from pod_spec_causes(spec, "spec")
    if spec.get("schedulingGates") and spec.get("nodeName") and not updating:
        yield forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
    if spec.get("ephemeralContainers") and not updating:
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")


def pod_spec_causes(spec: Object, field: str) -> Iterator[Cause]:
    """What is wrong with a pod's spec that stands at `field`."""
    claims, volumes = _names(spec.get("resourceClaims")), _names(spec.get("volumes"))
    yield from containers_causes(spec, field, volumes, claims)
    yield from volume_causes(spec.get("volumes") or [], f"{field}.volumes")
    yield from _policy_causes(spec, field)
    yield from _name_causes(spec, field)
    yield from validate_labels(spec.get("nodeSelector"), f"{field}.nodeSelector")
    yield from _toleration_list_causes(spec.get("tolerations") or [], f"{field}.tolerations")
    yield from _gate_causes(spec.get("schedulingGates") or [], f"{field}.schedulingGates")
    yield from named_causes(spec.get("resourceClaims") or [], f"{field}.resourceClaims", _claim_source_causes)
    yield from _spread_causes(spec.get("topologySpreadConstraints") or [], f"{field}.topologySpreadConstraints")
    yield from requirement_causes(spec.get("resources") or {}, f"{field}.resources", claims)


def _names(items: Iterable[Object] | None) -> frozenset[str]:
    return frozenset(one.get("name") or "" for one in items or ())


def _policy_causes(spec: Object, field: str) -> Iterator[Cause]:
    yield from one_of(spec.get("restartPolicy"), RESTART_POLICIES, f"{field}.restartPolicy")
    yield from one_of(spec.get("dnsPolicy"), DNS_POLICIES, f"{field}.dnsPolicy")
    if preemption := spec.get("preemptionPolicy"):
        yield from one_of(preemption, PREEMPTION_POLICIES, f"{field}.preemptionPolicy")
    yield from at_least(spec.get("terminationGracePeriodSeconds"), 0, f"{field}.terminationGracePeriodSeconds")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= DEADLINE_MAX_S:
        text = f"must be between 1 and {DEADLINE_MAX_S}, inclusive"
        yield invalid(f"{field}.activeDeadlineSeconds", deadline, text)


def _name_causes(spec: Object, field: str) -> Iterator[Cause]:
    for name in _SUBDOMAINS:
        value = spec.get(name)
        if value and (problem := dns_subdomain_problem(value)):
            yield invalid(f"{field}.{name}", value, problem)
    for name in _LABEL_NAMES:
        value = spec.get(name)
        if value and (problem := dns_label_problem(value)):
            yield invalid(f"{field}.{name}", value, problem)
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield required(f"{field}.imagePullSecrets[{index}].name")


def _toleration_list_causes(tolerations: list[Object], field: str) -> Iterator[Cause]:
    for index, one in enumerate(tolerations):
        yield from _toleration_causes(one, f"{field}[{index}]")


def _toleration_causes(toleration: Object, field: str) -> Iterator[Cause]:
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    value, effect = toleration.get("value") or "", toleration.get("effect") or ""
    if key and (problem := qualified_name_problem(key)):
        yield invalid(f"{field}.key", key, problem)
    if not key and operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{field}.operator", operator, text)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield invalid(f"{field}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator == "Exists" and value:
        yield invalid(f"{field}.operator", value, "value must be empty when `operator` is 'Exists'")
    elif operator == "Equal" and (problem := label_value_problem(value)):
        yield invalid(f"{field}.operator", value, problem)
    elif operator not in TOLERATION_OPERATORS:
        yield not_supported(f"{field}.operator", operator, TOLERATION_OPERATORS[:2])
    if effect and effect not in TAINT_EFFECTS:
        yield not_supported(f"{field}.effect", effect, TAINT_EFFECTS)


def _gate_causes(gates: list[Object], field: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        if problem := qualified_name_problem(name):
            yield invalid(f"{field}[{index}]", name, problem)
        if name in seen:
            yield duplicate(f"{field}[{index}]", name)
        seen.add(name)


def _claim_source_causes(claim: Object, field: str) -> Iterator[Cause]:
    sources = {name: claim[name] for name in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(name)}
    if len(sources) > 1:
        yield invalid(
            field, claim.get("name"), "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be set"
        )
    elif not sources:
        yield invalid(field, claim.get("name"), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
    for name, value in sources.items():
        if problem := dns_subdomain_problem(value):
            yield invalid(f"{field}.{name}", value, problem)


def _spread_causes(constraints: list[Object], field: str) -> Iterator[Cause]:
    for index, one in enumerate(constraints):
        path = f"{field}[{index}]"
        if (one.get("maxSkew") or 0) <= 0:
            yield invalid(f"{path}.maxSkew", one.get("maxSkew"), "must be greater than zero")
        if not one.get("topologyKey"):
            yield required(f"{path}.topologyKey", "can not be empty")
        supported = ("DoNotSchedule", "ScheduleAnyway")
        if one.get("whenUnsatisfiable") not in supported:
            yield not_supported(f"{path}.whenUnsatisfiable", one.get("whenUnsatisfiable") or "", supported)
        yield from selector_causes(one.get("labelSelector"), f"{path}.labelSelector")
