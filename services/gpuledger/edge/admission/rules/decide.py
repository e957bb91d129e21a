"""Decides about admission requests: one rule for each kind of object. Pure.

Admission checks pods alone, and not the objects that create pods, such as Deployments and Jobs.
"""

from collections.abc import Callable, Mapping
from typing import Final

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_POOLS, PODS
from gpuledger.edge.admission.cache import AdmissionCache
from gpuledger.edge.admission.errors import DenialError
from gpuledger.edge.admission.rules.allocations import check_allocation
from gpuledger.edge.admission.rules.devices import review_device
from gpuledger.edge.admission.rules.pods import review_pod
from gpuledger.edge.admission.rules.pools import review_pool
from gpuledger.edge.admission.rules.sharing import asks_for_shares, review_shares
from gpuledger.edge.webhooks.serving.review import ALLOWED, CREATE, AdmissionRequest, AdmissionResponse

Rule = Callable[[AdmissionRequest, AdmissionCache], AdmissionResponse]
"""Allows a request, or raises DenialError."""


def review_any_pod(request: AdmissionRequest, cache: AdmissionCache) -> AdmissionResponse:
    """By what the pod asks for: shared devices, units of a pool, or neither."""
    check_allocation(request, cache.sharing, cache.home)
    if request.operation == CREATE and not request.subresource and asks_for_shares(request.new, cache.sharing):
        return review_shares(request.new, cache.sharing)
    return review_pod(request, cache)


BINDINGS: Final = "bindings"
"""The older way to bind a pod, beside the subresource of pods: what it brings along reaches the pod in the same way."""

RULES: Final[Mapping[str, Rule]] = {
    PODS.plural: review_any_pod,
    BINDINGS: review_any_pod,
    GPU_POOLS.plural: review_pool,
    CLUSTER_GPU_POOLS.plural: review_pool,
    GPU_DEVICES.plural: review_device,
}
"""By the plural name of the resource."""


def decide(request: AdmissionRequest, cache: AdmissionCache) -> AdmissionResponse:
    """The response; a request about a resource without a rule is allowed."""
    rule = RULES.get(request.plural)
    try:
        return ALLOWED if rule is None else rule(request, cache)
    except DenialError as error:
        return AdmissionResponse(error.reason, str(error))
