"""Candidates of a claim for one device are free exactly where a real allocator gave the device; selectors are CEL."""

from typing import Any

import pytest

from gpuledger.domain.dra.candidates import ClusterDevices
from gpuledger.domain.dra.capacity import LEAST, consumption
from gpuledger.domain.dra.objects import Capacity, PoolId
from gpuledger.domain.dra.placement import PendingClaim
from gpuledger.domain.dra.state import Availability
from gpuledger.domain.quantities import Quantity
from gpuledger.edge.watchers.resources import claims, slices, taintrules
from gpuledger.events.claim import ClaimRequested, Request, Wish
from gpuledger.events.node import NodeLabelled
from gpuledger.tools.explain.device_selectors import selects
from gpuledger.tools.explain.dra import explain
from support.dra_explanations import CLASS, available
from support.dra_vectors import vectors
from support.paths import ROOT

FOLDER = ROOT.parent / "shared" / "vectors" / "dra"
VECTORS_MIN = 1_000


def state_of(vector: dict[str, Any]) -> Availability:
    """The cluster of a vector, as watchers record it."""
    kinds = ((slices.KIND, "slices"), (claims.KIND, "claims"), (taintrules.KIND, "deviceTaintRules"))
    parts = [(kind, kind.read(obj)) for kind, key in kinds for obj in vector[key]]
    facts = [
        (part.subject, fact)
        for kind, part in parts
        if part.subject and (fact := kind.combine([part.content])) is not None
    ]
    name, labels = vector["node"]["name"], vector["node"]["labels"]
    return available(*facts, (name, NodeLabelled(uid="u", labels=labels)), classes=[CLASS])


def allocatable(cluster: ClusterDevices, vector: dict[str, Any], key: str) -> bool:
    """Whether a claim for the least of one device can be allocated on the vector's node."""
    driver, name, device = key.split("/")
    selector = f'device.driver == "{driver}" && device.attributes["{driver}"].id == "{name}/{device}"'
    published = (one for part in cluster.state.index(PoolId(driver, name)).slices.values() for one in part.devices)
    least = {
        capacity: str(Quantity(LEAST))
        for offered in published
        if offered.name == device and offered.is_shareable
        for capacity, one in offered.capacity.items()
        if _is_cheap(one)
    }
    wish = Wish(name="r", device_class="gpu", selectors=(selector,), capacity=least)
    claim = ClaimRequested(uid="u", requests=(Request(name="r", wishes=(wish,)),))
    found = explain(cluster, [PendingClaim("ns/fresh", claim)], cluster.state.node(vector["node"]["name"]))
    is_free = any(one.is_free for one in found.claims[0].requests[0].options[0].candidates)
    assert (found.together.allocated is not None) is is_free
    return is_free


def _is_cheap(one: Capacity) -> bool:
    """Whether asking for next to nothing consumes less than asking for nothing in particular."""
    least, default = consumption(one, LEAST), consumption(one, None)
    return least is not None and (default is None or least < default)


@pytest.mark.long
@pytest.mark.shared
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded verdicts in {FOLDER}")
def test_every_recorded_verdict_agrees() -> None:
    checked, wrong = 0, []
    for vector in vectors(FOLDER):
        cluster = ClusterDevices(state_of(vector), selects)
        for key, blockers in vector["verdicts"].items():
            checked += 1
            if allocatable(cluster, vector, key) != blockers["allocatable"]:
                wrong.append(f"{vector['name']}: {key}: the allocator says {blockers['allocatable']}")
    assert wrong[:5] == []
    assert checked > VECTORS_MIN
