"""How many units of pools a pod asks for, as the scheduler counts them. Pure; nothing here raises.

Containers run at once, init containers one after the other before them. An init container that restarts always stays:
it counts for all that start after it. So a pod needs the most that it ever needs at once.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.labels import POOL_RESOURCES
from gpuledger.domain.quantities import UNIT, parse_quantity
from gpuledger.edge.watchers.problems import Problems
from gpuledger.edge.watchers.reading import mapping, text
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.pod import RESOURCES_MAX

CONTAINERS_MAX: Final = 1024
STAYS: Final = "Always"


def requests_of(spec: Mapping[str, Any], problems: Problems) -> dict[str, int]:
    """Units by resource; only resources of pools, and only what is asked for at all."""
    most: Counter[str] = Counter()
    staying: Counter[str] = Counter()
    for one, place in problems.each(spec, "initContainers", CONTAINERS_MAX):
        asked = _asked(one, place)
        most |= staying + asked
        if one.get("restartPolicy") == STAYS:
            staying += asked
    at_once = staying.copy()
    for one, place in problems.each(spec, "containers", CONTAINERS_MAX):
        at_once += _asked(one, place)
    return _bounded(most | at_once, problems)


def _asked(container: Mapping[str, Any], problems: Problems) -> Counter[str]:
    """What one container asks for; a limit asks for as much, where no request says otherwise."""
    limits, requests = mapping(container, "resources", "limits"), mapping(container, "resources", "requests")
    asked: Counter[str] = Counter()
    for resource in sorted({*limits, *requests}):
        if resource.startswith(POOL_RESOURCES) and text(resource):
            value = limits.get(resource) if requests.get(resource) is None else requests[resource]
            asked[resource] = _units(value, resource, problems.within("resources"))
    return asked


def _units(value: object, resource: str, problems: Problems) -> int:
    """Whole units, rounded up; what is no amount asks for nothing."""
    try:
        quantity = parse_quantity(value)
    except ValueError:
        problems.tell(resource, value)
        return 0
    if quantity.nanos < 0 or quantity.nanos % UNIT:
        problems.tell(resource, value)
    return max(0, quantity.whole)


def _bounded(asked: Mapping[str, int], problems: Problems) -> dict[str, int]:
    wanted = sorted(resource for resource, units in asked.items() if units)
    if len(wanted) > RESOURCES_MAX:
        problems.say(f"it asks for {len(wanted)} resources, of which {RESOURCES_MAX} are told")
    return {resource: min(asked[resource], BIGINT_MAX) for resource in wanted[:RESOURCES_MAX]}
