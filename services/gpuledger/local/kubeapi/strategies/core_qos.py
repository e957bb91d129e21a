"""Computes a pod's class of service from its requests and limits of CPU and memory."""

from gpuledger.domain.quantities import amount
from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.strategies.core_shared import at

COMPUTE = frozenset({"cpu", "memory"})


def qos_class(spec: Object) -> str:
    """`Guaranteed`, `Burstable` or `BestEffort`, for a spec whose requests are filled in."""
    holders = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    if spec.get("resources"):
        holders = [spec]
    limits = [_compute(one, "limits") for one in holders]
    requests = [_compute(one, "requests") for one in holders]
    if not any(limits) and not any(requests):
        return "BestEffort"
    whole = all(limit.keys() == COMPUTE for limit in limits)
    return "Guaranteed" if whole and limits == requests else "Burstable"


def _compute(holder: Object, name: str) -> Object:
    given = at(holder, "resources", name)
    return {key: amount(given[key]) for key in COMPUTE & given.keys() if amount(given[key])}
