"""What the extender needs of a pod: its identity, what it asks of shared devices, and where it is. Pure.

Amounts are counted as kube-scheduler counts them: containers run side by side, init containers before them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gpuledger.api.sharing import SharingNames
from gpuledger.domain.pools.requests import ContainerRequest, is_sidecar, units_held
from gpuledger.domain.quantities import parse_quantity
from gpuledger.edge.kube.objects import items, mapping

ENDED: Final = frozenset({"Succeeded", "Failed"})
QUANTITIES_KEPT_MAX: Final = 4096
"""Quantities repeat from pod to pod, so what was read is kept."""


class ContainerAmounts(NamedTuple):
    """What one container asks of shared devices, by short name; `is_init`: before the others, unless a sidecar."""

    name: str
    amounts: tuple[tuple[str, int], ...]
    is_init: bool = False
    is_sidecar: bool = False


class SchedulablePod(NamedTuple):
    """A pod as kube-scheduler sends it, or as the API server has it.

    `amounts` go by short name. `hint`, `joint`, `partition` and `allocated` are its annotations as they stand; `node`
    is where it is bound. `is_over`: it `has_ended`, or is being deleted. `containers` are those that ask for something,
    and `has_annotations` says whether it has any.
    """

    namespace: str
    name: str
    uid: str
    amounts: tuple[tuple[str, int], ...]
    hint: str | None = None
    joint: str | None = None
    partition: str | None = None
    allocated: str | None = None
    node: str | None = None
    is_over: bool = False
    containers: tuple[ContainerAmounts, ...] = ()
    has_annotations: bool = False
    priority: int = 0
    has_ended: bool = False

    @property
    def pod(self) -> str:
        """Its id in the ledger."""
        return f"{self.namespace}/{self.name}"


def read_pod(obj: Mapping[str, Any], names: SharingNames) -> SchedulablePod:
    """The pod of a core/v1 object."""
    metadata, spec = mapping(obj, "metadata"), mapping(obj, "spec")
    annotations = mapping(metadata, "annotations")
    requests = tuple(_containers(spec, names))
    amounts = units_held(one for _, one in requests)
    has_ended = mapping(obj, "status").get("phase") in ENDED
    is_over = bool(metadata.get("deletionTimestamp")) or has_ended
    return SchedulablePod(
        str(metadata.get("namespace") or "default"),
        str(metadata.get("name") or ""),
        str(metadata.get("uid") or ""),
        _sorted(amounts),
        _text(annotations, names.allocate_hint),
        _text(annotations, names.joint_allocate),
        _text(annotations, names.partition_spec),
        _text(annotations, names.allocated),
        _text(spec, "nodeName"),
        is_over,
        tuple(
            ContainerAmounts(name, found, one.is_init, one.is_sidecar)
            for name, one in requests
            if (found := _sorted(one.units))
        ),
        bool(annotations),
        _priority(spec.get("priority")),
        has_ended,
    )


def _priority(value: object) -> int:
    """The pod's priority, which admission has resolved from its class; none is 0."""
    return value if isinstance(value, int) else 0


def _sorted(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((short, amount) for short, amount in amounts.items() if amount > 0))


def _containers(spec: Mapping[str, Any], names: SharingNames) -> Iterator[tuple[str, ContainerRequest]]:
    for one in items(spec, "initContainers"):
        yield _name(one), ContainerRequest(_amounts(one, names), is_init=True, is_sidecar=is_sidecar(one))
    for one in items(spec, "containers"):
        yield _name(one), ContainerRequest(_amounts(one, names))


def _name(container: object) -> str:
    return str(mapping(container).get("name") or "")


def _amounts(container: object, names: SharingNames) -> Counter[str]:
    """The requests of ours; a limit without a request is one, as Kubernetes fills it in."""
    given = {**mapping(container, "resources", "limits"), **mapping(container, "resources", "requests")}
    found = Counter[str]()
    for resource, quantity in given.items():
        short = names.short(str(resource))
        if short is not None and isinstance(quantity, str | int | float):
            found[short] = _whole(quantity)
    return found


@lru_cache(maxsize=QUANTITIES_KEPT_MAX, typed=True)
def _whole(quantity: str | float) -> int:
    """The next whole number up; 0 for what is no quantity, which no API server lets in."""
    try:
        return parse_quantity(quantity).whole
    except ValueError:
        return 0


def _text(values: Mapping[str, Any], key: str) -> str | None:
    found = values.get(key)
    return found if isinstance(found, str) and found else None
