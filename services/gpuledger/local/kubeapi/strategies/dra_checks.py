"""Checks that the types of `resource.k8s.io` share: names, bounded lists, CEL selectors and taints.

Causes come in the order of the fields. The items of a list that is too long are not checked.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuledger.edge.kube.schema.causes import (
    Cause,
    Object,
    duplicate,
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
EFFECTS = ("NoExecute", "NoSchedule", "None")

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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


def selectors(values: Sequence[Object] | None, field: str) -> Iterator[Cause]:
    """Selectors of devices; their expressions have to compile."""
    yield from items(values, SELECTORS_MAX, field, _selector)


def taint(value: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """A taint of a device."""
    yield from label_key(value.get("key"), f"{field}.key")
    yield from _label_value(value.get("value"), f"{field}.value")
    effect = value.get("effect")
    if not effect:
        yield required(f"{field}.effect")
    elif effect not in EFFECTS:
        yield not_supported(f"{field}.effect", effect, EFFECTS)


def label_key(name: str | None, field: str) -> Iterator[Cause]:
    """A qualified name, as labels and conditions have."""
    if problem := qualified_name_problem(name or ""):
        yield invalid(field, name or "", problem)


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


def _identifier(name: str, field: str) -> Iterator[Cause]:
    if len(name) > IDENTIFIER_MAX:
        yield too_long(field, IDENTIFIER_MAX)
    if not _IDENTIFIER.fullmatch(name):
        yield invalid(field, name, "a valid C identifier must start with a letter or '_', followed by these or digits")


def _label_value(value: str | None, field: str) -> Iterator[Cause]:
    if problem := label_value_problem(value or ""):
        yield invalid(field, value, problem)
