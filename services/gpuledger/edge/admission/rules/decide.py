"""What the webhooks decide: a question and what is known, in; allowed or refused, out. Pure.

Objects that make pods (Deployments, Jobs) are not looked at: their pods are.
"""

from collections.abc import Callable, Mapping
from typing import Final

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_POOLS, PODS
from gpuledger.edge.admission.cache import AdmissionCache
from gpuledger.edge.admission.rules.devices import review_device
from gpuledger.edge.admission.rules.pods import review_pod
from gpuledger.edge.admission.rules.pools import review_pool
from gpuledger.edge.admission.serving.review import ALLOWED, Review, Verdict

Rule = Callable[[Review, AdmissionCache], Verdict]

RULES: Final[Mapping[str, Rule]] = {
    PODS.plural: review_pod,
    GPU_POOLS.plural: review_pool,
    CLUSTER_GPU_POOLS.plural: review_pool,
    GPU_DEVICES.plural: review_device,
}
"""By the resource's plural name."""


def decide(review: Review, cache: AdmissionCache) -> Verdict:
    """The verdict; what has no rule is allowed."""
    rule = RULES.get(review.plural)
    return ALLOWED if rule is None else rule(review, cache)
