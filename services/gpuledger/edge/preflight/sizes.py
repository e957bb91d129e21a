"""How much processor time and memory a check's container requests: never more than its pod has already. Pure.

A pod's effective request is the larger one of the sum of its containers and of each init container, so a request within
the sum does not raise it. Where each container of the pod has a limit, the check has the largest of them: a quota or a
class of quality of service would not have it otherwise.
"""

from collections.abc import Sequence

from gpuledger.domain.quantities import Quantity
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.preflight.amounts import amount_of
from gpuledger.edge.preflight.configuration import Resources
from gpuledger.edge.preflight.devices import PodContainers
from gpuledger.edge.webhooks.serving.review import Object

COMPUTE = ("cpu", "memory")
ZERO = Quantity(0)

Amounts = dict[str, str]


def compute_resources(given: Resources, containers: PodContainers) -> tuple[Amounts, Amounts]:
    """Requests and limits of a check's container beside the pod's own containers."""
    requests: Amounts = {}
    limits: Amounts = {}
    is_guaranteed = all(map(_is_guaranteed, containers.all))
    for name in COMPUTE:
        limit = _limit(name, given, containers.all)
        request = limit if is_guaranteed else _request(name, given, containers, limit)
        if limit is not None:
            limits[name] = str(limit)
        if request is not None:
            requests[name] = str(request)
    return requests, limits


def _limit(name: str, given: Resources, containers: Sequence[Object]) -> Quantity | None:
    own = [_amount(one, "limits", name) for one in containers]
    found = [one for one in own if one is not None]
    if found and len(found) == len(own):
        return max(found)
    configured = given.limits.get(name)
    return amount_of(configured)


def _request(name: str, given: Resources, containers: PodContainers, limit: Quantity | None) -> Quantity | None:
    """What is configured, within what the pod has and the limit; a limit without a request would be taken for one."""
    effective, configured = _effective(name, containers), given.requests.get(name)
    if effective is None or configured is None:
        return None if limit is None else ZERO
    bounds = (amount_of(configured), effective, limit)
    return min(one for one in bounds if one is not None)


def _effective(name: str, containers: PodContainers) -> Quantity | None:
    """The request of the pod; None where none of its containers has one."""
    running = [amount for one in containers.running if (amount := _requested(one, name)) is not None]
    initial = [amount for one in containers.initial if (amount := _requested(one, name)) is not None]
    together = [running[0].as_much(sum(one.nanos for one in running))] if running else []
    return max([*together, *initial], default=None)


def _requested(container: Object, name: str) -> Quantity | None:
    """The request; Kubernetes takes the limit where there is none."""
    found = _amount(container, "requests", name)
    return _amount(container, "limits", name) if found is None else found


def _is_guaranteed(container: Object) -> bool:
    pairs = [(_amount(container, "limits", name), _requested(container, name)) for name in COMPUTE]
    return all(limit and request and limit.nanos == request.nanos for limit, request in pairs)


def _amount(container: Object, kind: str, name: str) -> Quantity | None:
    return amount_of(mapping(container, "resources", kind).get(name))
