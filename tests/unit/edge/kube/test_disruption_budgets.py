"""What a disruption budget blocks says nothing about the API server."""

from typing import Any

import pytest

from gpuledger.edge.kube.circuit_breaker import is_for_all
from gpuledger.edge.kube.errors import DisruptionBudgetError, KubeError, error_of

CAUSE = {"reason": "DisruptionBudget", "message": "The disruption budget pdb needs 1 healthy pods and has 1 currently"}
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


@pytest.mark.parametrize(
    ("code", "status", "is_of_budget"),
    [
        (429, {"details": {"causes": [CAUSE], "retryAfterSeconds": 10}}, True),
        (500, {"message": SEVERAL}, True),
        (429, {"message": "too many requests"}, False),
        (500, {"message": "etcd is away"}, False),
    ],
)
def test_only_the_servers_own_trouble_opens_the_circuit_breaker(
    code: int, status: dict[str, Any], is_of_budget: bool
) -> None:
    error: KubeError = error_of('evict pods "p"', "server", code, status, None)
    assert (isinstance(error, DisruptionBudgetError), is_for_all(error)) == (is_of_budget, not is_of_budget)
