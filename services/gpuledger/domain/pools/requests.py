"""How many units of pools a pod requests, counted as Kubernetes' scheduler counts; watchers and admission share it.

Containers run side by side, init containers one after another before them. A sidecar, an init container that always
restarts, keeps running beside all that start after it. So a pod holds the most that it needs at any one time. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from gpuledger.domain.quantities import UNIT, parse_quantity

_SIDECAR_POLICY: Final = "Always"


class Units(NamedTuple):
    """Whole units, rounded up and never below 0; `is_exact` where the quantity says exactly so many."""

    number: int
    is_exact: bool


class ContainerRequest(NamedTuple):
    """The units that a container requests, by resource, and how it runs; init containers come first, in their order."""

    units: Counter[str]
    is_init: bool = False
    is_sidecar: bool = False


def read_units(quantity: object) -> Units:
    """The units that a quantity stands for; 0 if it is not a quantity."""
    try:
        found = parse_quantity(quantity)
    except ValueError:
        return Units(0, is_exact=False)
    return Units(max(0, found.whole), found.nanos >= 0 and found.nanos % UNIT == 0)


def is_sidecar(init_container: Mapping[str, Any]) -> bool:
    """Whether an init container keeps running beside the containers after it."""
    return init_container.get("restartPolicy") == _SIDECAR_POLICY


def units_held(containers: Iterable[ContainerRequest]) -> Counter[str]:
    """The most units of each resource that a pod holds at a time."""
    most, running = Counter[str](), Counter[str]()
    for one in containers:
        most |= running + one.units
        if one.is_sidecar or not one.is_init:
            running += one.units
    return most
