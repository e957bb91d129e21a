"""Validates the spec of a pod as far as the scheduling of pods with devices depends on it.

It checks names, resources, scheduling gates and claims. It does not check whether other objects exist, nor settings
that only concern how containers run.
"""

from collections.abc import Iterator, Mapping

from gpuledger.domain.quantities import amount
from gpuledger.edge.kube.schema.causes import Cause, Object, duplicate, forbidden, invalid, required
from gpuledger.edge.kube.schema.object_names import dns_label_problem, qualified_name_problem
from gpuledger.local.kubeapi.strategies.core_shared import at, one_of

RESTART_POLICIES = ("Always", "OnFailure", "Never")
_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
HUGE_PAGES = "hugepages-"
_NATIVE_DOMAIN = "kubernetes.io/"


def pod_causes(pod: Object, *, updating: bool = False) -> Iterator[Cause]:
    """Everything wrong with a pod."""
    spec = at(pod, "spec")
    claims = frozenset(str(one.get("name")) for one in spec.get("resourceClaims") or ())
    if not spec.get("containers"):
        yield required("spec.containers")
    for part in ("containers", "initContainers"):
        yield from _named_causes(spec.get(part) or [], f"spec.{part}")
        for index, container in enumerate(spec.get(part) or ()):
            yield from _container_causes(container, f"spec.{part}[{index}]", claims)
    yield from one_of(spec.get("restartPolicy"), RESTART_POLICIES, "spec.restartPolicy")
    yield from _named_causes(spec.get("resourceClaims") or [], "spec.resourceClaims")
    yield from _gate_causes(spec.get("schedulingGates") or [], "spec.schedulingGates")
    if spec.get("schedulingGates") and spec.get("nodeName") and not updating:
        yield forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def _named_causes(items: list[Object], field: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        name, path = item.get("name") or "", f"{field}[{index}].name"
        if not name:
            yield required(path)
        elif problem := dns_label_problem(name):
            yield invalid(path, name, problem)
        elif name in seen:
            yield duplicate(path, name)
        seen.add(name)


def _container_causes(container: Object, field: str, claims: frozenset[str]) -> Iterator[Cause]:
    if not container.get("image"):
        yield required(f"{field}.image")
    field = f"{field}.resources"
    limits, requests = at(container, "resources", "limits"), at(container, "resources", "requests")
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            yield from _amount_causes(name, value, f"{field}.{part}[{name}]")
    for name, value in requests.items():
        yield from _excess_causes(name, value, limits, field)
    for index, one in enumerate(at(container, "resources").get("claims") or ()):
        if one.get("name") not in claims:
            yield Cause("FieldValueNotFound", f'Not found: "{one.get("name")}"', f"{field}.claims[{index}]")


def _amount_causes(name: str, value: object, field: str) -> Iterator[Cause]:
    if problem := qualified_name_problem(name):
        yield invalid(field, name, problem)
    elif "/" not in name and name not in _STANDARD and not name.startswith(HUGE_PAGES):
        yield invalid(field, name, "must be a standard resource for containers")
    if amount(value) < 0:
        yield invalid(field, value, "must be greater than or equal to 0")
    if is_extended(name) and amount(value).denominator != 1:
        yield invalid(field, value, "must be an integer")


def _excess_causes(name: str, value: object, limits: Mapping[str, object], field: str) -> Iterator[Cause]:
    limit, may_overcommit = limits.get(name), not is_extended(name) and not name.startswith(HUGE_PAGES)
    if limit is None:
        if not may_overcommit:
            yield required(f"{field}.limits", "Limit must be set for non overcommitable resources")
    elif not may_overcommit and amount(value) != amount(limit):
        yield invalid(f"{field}.requests", value, f"must be equal to {name} limit of {limit}")
    elif amount(value) > amount(limit):
        yield invalid(f"{field}.requests", value, f"must be less than or equal to {name} limit of {limit}")


def is_extended(name: str) -> bool:
    """Whether a device plugin or an operator provides the resource, so that it comes in whole units."""
    return "/" in name and _NATIVE_DOMAIN not in name and not name.startswith("requests.")


def _gate_causes(gates: list[Object], field: str) -> Iterator[Cause]:
    names = [gate.get("name") or "" for gate in gates]
    for index, name in enumerate(names):
        if problem := qualified_name_problem(name):
            yield invalid(f"{field}[{index}]", name, problem)
        if name in names[:index]:
            yield duplicate(f"{field}[{index}]", name)
