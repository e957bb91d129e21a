"""What the types of resource.k8s.io check alike: names, lists of bounded length, selectors in CEL, taints, tolerations.

Causes come in the order of the fields. A list that is too long is told of as a whole; its items are not looked at.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuledger.edge.kube.schema.causes import (
    Cause,
    Object,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from gpuledger.edge.kube.schema.object_names import (
    dns_label_problem,
    dns_subdomain_problem,
    label_value_problem,
    qualified_name_problem,
)
from gpuledger.local.kubeapi.strategies.dra_cel import selector_problem

DRIVER_MAX = 63
POOL_MAX = 253
IDENTIFIER_MAX = 32
SELECTORS_MAX = 32
EXPRESSION_MAX = 10 * 1024
PARAMETERS_MAX = 10 * 1024
"""Bytes of an opaque configuration, and of a device's data."""

EFFECTS = ("NoExecute", "NoSchedule", "None")

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

ItemCheck = Callable[[Any, str], Iterable[Cause]]


def items(values: Sequence[Any] | None, limit: int, field: str, check: ItemCheck) -> Iterator[Cause]:
    """Check the length and the items of a list; a negative limit is none."""
    if 0 <= limit < len(values or ()):
        yield too_many(field, len(values or ()), limit)
        return
    for index, value in enumerate(values or ()):
        yield from check(value, f"{field}[{index}]")


def unique_items(
    values: Sequence[Any] | None, limit: int, field: str, check: ItemCheck, key: Callable[[Any], object]
) -> Iterator[Cause]:
    """As `items`; no key may be there twice."""
    yield from items(values, limit, field, check)
    if 0 <= limit < len(values or ()):
        return
    seen = set()
    for index, value in enumerate(values or ()):
        found = key(value)
        if found in seen:
            yield duplicate(f"{field}[{index}]", found)
        seen.add(found)


def driver(name: str | None, field: str) -> Iterator[Cause]:
    """A driver is named like a domain, in any case."""
    if not name:
        yield required(field)
        return
    if len(name) > DRIVER_MAX:
        yield too_long(field, DRIVER_MAX)
    if problem := dns_subdomain_problem(name.lower()):
        yield invalid(field, name, problem)


def pool(name: str | None, field: str) -> Iterator[Cause]:
    """A pool is named by subdomains, with slashes between."""
    if not name:
        yield required(field)
        return
    if len(name) > POOL_MAX:
        yield too_long(field, POOL_MAX)
    for part in name.split("/"):
        if problem := dns_subdomain_problem(part):
            yield invalid(field, part, problem)


def label_name(name: str | None, field: str) -> Iterator[Cause]:
    """Devices, requests and counters are named by RFC 1123 labels."""
    if problem := dns_label_problem(name or ""):
        yield invalid(field, name or "", problem)


def required_label_name(name: str | None, field: str) -> Iterator[Cause]:
    """As `label_name`, where an absent name is told of as such."""
    yield from label_name(name, field) if name else [required(field)]


def qualified(name: str, field: str) -> Iterator[Cause]:
    """Attributes and capacities are named `[domain/]identifier`."""
    parts = name.split("/")
    if len(parts) > 2:
        yield invalid(field, name, "must not contain more than one slash")
        return
    if len(parts) == 2 and not parts[0]:
        yield invalid(field, "", "the domain must not be empty")
    elif len(parts) == 2:
        yield from driver(parts[0], field)
    if len(parts) == 2 and not parts[1]:
        yield invalid(field, "", "the name must not be empty")
    else:
        yield from _identifier(parts[-1], field)


def fully_qualified(name: str, field: str) -> Iterator[Cause]:
    """As `qualified`, with its domain."""
    yield from qualified(name, field)
    if "/" not in name:
        yield invalid(field, name, "a fully qualified name must be a domain and a name separated by a slash")


def share_id(uid: str | None, field: str) -> Iterator[Cause]:
    """A share of a device is told by a UUID."""
    if uid is not None and not _UID.fullmatch(uid):
        yield invalid(field, uid, "error validating uid: must be a lowercase UUID")


def selectors(values: Sequence[Object] | None, field: str) -> Iterator[Cause]:
    """Selectors of devices; their expressions have to compile."""
    yield from items(values, SELECTORS_MAX, field, _selector)


def configuration(config: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """What a driver is told, opaquely."""
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{field}.opaque")
        return
    yield from driver(opaque.get("driver"), f"{field}.opaque.driver")
    yield from raw_object(opaque.get("parameters"), f"{field}.opaque.parameters")


def raw_object(value: object, field: str) -> Iterator[Cause]:
    """Any JSON object of a bounded size."""
    if value is None:
        yield required(field)
    elif len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > PARAMETERS_MAX:
        yield too_long(field, PARAMETERS_MAX)
    elif not isinstance(value, dict):
        yield invalid(field, "<value omitted>", "must be a valid JSON object")


def taint(value: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """What keeps claims away from a device."""
    yield from label_key(value.get("key"), f"{field}.key")
    yield from _label_value(value.get("value"), f"{field}.value")
    effect = value.get("effect")
    if not effect:
        yield required(f"{field}.effect")
    elif effect not in EFFECTS:
        yield not_supported(f"{field}.effect", effect, EFFECTS)


def toleration(value: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """What lets a request have a tainted device."""
    operator, effect = value.get("operator"), value.get("effect")
    if value.get("key"):
        yield from label_key(value["key"], f"{field}.key")
    if not operator:
        yield required(f"{field}.operator")
    elif operator == "Exists" and value.get("value"):
        yield invalid(f"{field}.value", value["value"], "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from _label_value(value.get("value"), f"{field}.value")
    elif operator != "Exists":
        yield not_supported(f"{field}.operator", operator, ("Equal", "Exists"))
    if effect and effect not in EFFECTS:
        yield not_supported(f"{field}.effect", effect, EFFECTS)


def label_key(name: str | None, field: str) -> Iterator[Cause]:
    """A qualified name, as labels and conditions have."""
    if problem := qualified_name_problem(name or ""):
        yield invalid(field, name or "", problem)


def node_name(name: str, field: str) -> Iterator[Cause]:
    """A node's name."""
    if problem := dns_subdomain_problem(name):
        yield invalid(field, name, problem)


def node_selector(selector: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """Which nodes can use a device."""
    terms, field = selector.get("nodeSelectorTerms") or (), f"{field}.nodeSelectorTerms"
    if not terms:
        yield required(field, "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from items(term.get("matchExpressions"), -1, f"{field}[{index}].matchExpressions", _node_expression)
        yield from items(term.get("matchFields"), -1, f"{field}[{index}].matchFields", _node_field)


def conditions(values: Sequence[Object] | None, limit: int, field: str) -> Iterator[Cause]:
    """Conditions as `metav1.Condition` has them."""
    if len(values or ()) > limit:
        yield too_many(field, len(values or ()), limit)
    yield from unique_items(values, -1, field, _condition, lambda one: one.get("type"))


def _condition(value: Mapping[str, Any], field: str) -> Iterator[Cause]:
    yield from label_key(value.get("type"), f"{field}.type")
    if value.get("status") not in {"True", "False", "Unknown"}:
        yield not_supported(f"{field}.status", value.get("status") or "", ("False", "True", "Unknown"))
    if (value.get("observedGeneration") or 0) < 0:
        yield invalid(
            f"{field}.observedGeneration", value["observedGeneration"], "must be greater than or equal to zero"
        )
    for name in ("lastTransitionTime", "reason"):
        if not value.get(name):
            yield required(f"{field}.{name}", "must be set")


def _selector(value: Mapping[str, Any], field: str) -> Iterator[Cause]:
    cel = value.get("cel")
    if cel is None:
        yield required(f"{field}.cel")
        return
    expression, field = cel.get("expression") or "", f"{field}.cel.expression"
    if len(expression) > EXPRESSION_MAX:
        yield too_long(field, EXPRESSION_MAX)
    elif problem := selector_problem(expression):
        yield invalid(field, expression, problem)


def _node_expression(value: Mapping[str, Any], field: str) -> Iterator[Cause]:
    operator, values = value.get("operator"), value.get("values") or ()
    if operator in {"In", "NotIn"} and not values:
        yield required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in {"Exists", "DoesNotExist"} and values:
        yield forbidden(f"{field}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in {"Gt", "Lt"} and len(values) != 1:
        yield required(f"{field}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    elif operator not in {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}:
        yield invalid(f"{field}.operator", operator or "", "not a valid selector operator")
    yield from label_key(value.get("key"), f"{field}.key")


def _node_field(value: Mapping[str, Any], field: str) -> Iterator[Cause]:
    operator, values, key = value.get("operator"), value.get("values") or (), value.get("key") or ""
    if operator not in {"In", "NotIn"}:
        yield invalid(f"{field}.operator", operator or "", "not a valid selector operator")
    elif len(values) != 1:
        message = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{field}.values", message)
    if key != "metadata.name":
        yield invalid(f"{field}.key", key, "not a valid field selector key")
        return
    for index, name in enumerate(values):
        yield from node_name(name, f"{field}.values[{index}]")


def _identifier(name: str, field: str) -> Iterator[Cause]:
    if len(name) > IDENTIFIER_MAX:
        yield too_long(field, IDENTIFIER_MAX)
    if not _IDENTIFIER.fullmatch(name):
        yield invalid(field, name, "a valid C identifier must start with a letter or '_', followed by these or digits")


def _label_value(value: str | None, field: str) -> Iterator[Cause]:
    if problem := label_value_problem(value or ""):
        yield invalid(field, value, problem)


def interface_address(value: str, field: str) -> Iterator[Cause]:
    """An address with the length of its prefix, such as `192.0.2.5/24`."""
    try:
        if "/" not in value:
            raise ValueError(value)
        ipaddress.ip_interface(value)
    except ValueError:
        yield invalid(field, value, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)")
