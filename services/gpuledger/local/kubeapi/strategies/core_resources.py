"""Whether amounts of resources hold up: in a container, on a node.

Extended resources (names with a domain other than kubernetes.io) come in whole pieces and cannot be overcommitted.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction

from gpuledger.edge.kube.schema.causes import Cause, Object, forbidden, invalid, required
from gpuledger.edge.kube.schema.object_names import qualified_name_problem
from gpuledger.local.kubeapi.strategies.core_quantities import amount
from gpuledger.local.kubeapi.strategies.core_shared import at

STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
HUGE_PAGES = "hugepages-"
_NATIVE_DOMAIN = "kubernetes.io/"


def is_extended(name: str) -> bool:
    """Whether a resource is one that a device plugin or an operator brings."""
    return "/" in name and _NATIVE_DOMAIN not in name and not name.startswith("requests.")


def may_overcommit(name: str) -> bool:
    """Whether limits may exceed requests."""
    return not is_extended(name) and not name.startswith(HUGE_PAGES)


def quantity_causes(name: str, value: object, field: str) -> Iterator[Cause]:
    """A quantity is negative, or a broken piece of what comes whole."""
    quantity = amount(value)
    if quantity < 0:
        yield invalid(field, value, "must be greater than or equal to 0")
    if is_extended(name) and quantity.denominator != 1:
        yield invalid(field, value, "must be an integer")


def requirement_causes(resources: Object, field: str, claims: frozenset[str]) -> Iterator[Cause]:
    """What is wrong with limits, requests and claims of one container. `claims` are those that the pod has."""
    limits, requests = at(resources, "limits"), at(resources, "requests")
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            path = f"{field}.{part}[{name}]"
            yield from _name_causes(name, path)
            yield from quantity_causes(name, value, path)
    for name, value in requests.items():
        yield from _excess_causes(name, value, limits, field)
    wants_pages = any(name.startswith(HUGE_PAGES) for name in (*limits, *requests))
    if wants_pages and not {"cpu", "memory"} & {*limits, *requests}:
        yield forbidden(field, "HugePages require cpu or memory")
    yield from _claim_causes(resources, f"{field}.claims", claims)


def _name_causes(name: str, field: str) -> Iterator[Cause]:
    if problem := qualified_name_problem(name):
        yield invalid(field, name, problem)
    elif "/" not in name and name not in STANDARD and not name.startswith(HUGE_PAGES):
        yield invalid(field, name, "must be a standard resource for containers")


def _excess_causes(name: str, value: object, limits: Mapping[str, object], field: str) -> Iterator[Cause]:
    limit = limits.get(name)
    if limit is None:
        if not may_overcommit(name):
            yield required(f"{field}.limits", "Limit must be set for non overcommitable resources")
        return
    over: Fraction = amount(value) - amount(limit)
    if over and not may_overcommit(name):
        yield invalid(f"{field}.requests", value, f"must be equal to {name} limit of {limit}")
    elif over > 0:
        yield invalid(f"{field}.requests", value, f"must be less than or equal to {name} limit of {limit}")


def _claim_causes(resources: Object, field: str, claims: frozenset[str]) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, one in enumerate(resources.get("claims") or ()):
        name, path = one.get("name") or "", f"{field}[{index}]"
        if not name:
            yield required(f"{path}.name")
        elif name not in claims:
            yield Cause("FieldValueNotFound", f'Not found: "{name}"', path)
        if (key := (name, one.get("request") or "")) in seen:
            yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', path)
        seen.add(key)
