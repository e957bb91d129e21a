"""How much processor time and memory a check's container requests: never more than its pod has already. Pure.

A pod's effective request is the larger one of the sum of its containers and of each init container, so a request within
the sum does not raise it. Where each container of the pod has a limit, the check has the largest of them: a quota or a
class of quality of service would not have it otherwise. A LimitRange may demand a least request, and bound how far a
limit exceeds its request; a container that keeps to that shows how much is enough.
"""

from collections.abc import Sequence

from gpuledger.domain.quantities import Quantity
from gpuledger.edge.kube.objects import NOTHING, mapping
from gpuledger.edge.preflight.amounts import amount_of
from gpuledger.edge.preflight.configuration import Resources
from gpuledger.edge.preflight.devices import PodContainers
from gpuledger.edge.webhooks.serving.review import Object

COMPUTE = ("cpu", "memory")
ZERO = Quantity(0)

Amounts = dict[str, str]


def compute_resources(given: Resources, containers: PodContainers, whole: Object = NOTHING) -> tuple[Amounts, Amounts]:
    """Requests and limits of a check's container beside the pod's own; `whole` has those of the pod itself."""
    requests: Amounts = {}
    limits: Amounts = {}
    for name in COMPUTE:
        limit = _limit(name, given, containers.all, amount_of(mapping(whole, "limits").get(name)))
        request = _request(name, given, containers, limit)
        if limit is not None:
            limits[name] = str(limit)
        if request is not None:
            requests[name] = str(request)
    return requests, limits


def _limit(name: str, given: Resources, containers: Sequence[Object], of_pod: Quantity | None) -> Quantity | None:
    largest = _largest_limit(name, containers)
    if largest is not None:
        return _amount(largest, "limits", name)
    configured = amount_of(given.limits.get(name))
    return None if configured is None else _least(configured, of_pod)


def _largest_limit(name: str, containers: Sequence[Object]) -> Object | None:
    """The container with the largest limit; None unless each has one."""
    limits = [(limit, one) for one in containers if (limit := _amount(one, "limits", name)) is not None]
    if not limits or len(limits) < len(containers):
        return None
    return max(limits, key=lambda pair: pair[0].nanos)[1]


def _request(name: str, given: Resources, containers: PodContainers, limit: Quantity | None) -> Quantity | None:
    """What is configured, within what the pod has and the limit; a limit without a request would be taken for one."""
    effective, configured = _effective(name, containers), amount_of(given.requests.get(name))
    enough = _enough(name, containers.all)
    if effective is None or (configured is None and enough is None):
        return None if limit is None else ZERO
    request = _least(configured, effective) if configured is not None else ZERO
    return _least(request if enough is None else max(request, enough, key=lambda one: one.nanos), limit)


def _enough(name: str, containers: Sequence[Object]) -> Quantity | None:
    """A request that a LimitRange lets through, as the containers show: None where they do not all have one."""
    largest = _largest_limit(name, containers)
    if largest is not None:
        return _requested(largest, name)
    requests = [request for one in containers if (request := _requested(one, name)) is not None]
    return min(requests, key=lambda one: one.nanos) if len(requests) == len(containers) and requests else None


def _least(amount: Quantity, bound: Quantity | None) -> Quantity:
    return amount if bound is None or amount.nanos <= bound.nanos else bound


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


def _amount(container: Object, kind: str, name: str) -> Quantity | None:
    return amount_of(mapping(container, "resources", kind).get(name))
