"""What becomes of a reservation, by what Kubernetes says of the pod."""

import pytest

from gpuledger.api.sharing import SharingNames
from gpuledger.domain.sharing.annotation import write_allocation
from gpuledger.domain.sharing.model import Allocated, Allocation
from gpuledger.edge.extender.pods import SchedulablePod
from gpuledger.edge.extender.settlement import settlement

NAMES = SharingNames()
HALF: Allocation = {"gpu": (Allocated(0, {"gpu-core": 50, "gpu-memory-ratio": 50}),)}
OTHER: Allocation = {"gpu": (Allocated(1, {"gpu-core": 50, "gpu-memory-ratio": 50}),)}
OURS, THEIRS = (write_allocation(one, {}, NAMES) for one in (HALF, OTHER))


def pod(node: str | None, allocated: str | None, *, uid: str = "u", is_over: bool = False) -> SchedulablePod:
    return SchedulablePod("default", "p", uid, (), allocated=allocated, node=node, is_over=is_over)


@pytest.mark.parametrize(
    ("found", "reason", "removes"),
    [
        (None, "PodGone", False),
        (pod("n1", OURS, uid="another"), "PodGone", False),
        (pod(None, None), "NotBound", False),
        (pod(None, OURS), "NotBound", True),
        (pod(None, THEIRS), "NotBound", False),
        (pod(None, OURS, is_over=True), "PodGone", True),
        (pod("n1", OURS), "", False),
        (pod("n1", OURS, is_over=True), "", False),
        (pod("n1", None), "BoundByOthers", False),
        (pod("n1", THEIRS), "BoundByOthers", False),
        (pod("n1", "no JSON"), "BoundByOthers", False),
        (pod("n2", OURS), "BoundElsewhere", True),
        (pod("n2", None), "BoundElsewhere", False),
    ],
)
def test_kubernetes_says_what_becomes_of_it(found: SchedulablePod | None, reason: str, removes: bool) -> None:
    outcome = settlement("u", "n1", HALF, found, NAMES)
    assert (outcome.is_bound, outcome.reason, outcome.removes) == (not reason, reason, removes)
    assert bool(outcome.message) is bool(reason)
