"""What a fact costs does not grow with the cluster: only the device's or the node's own pools are looked at."""

import sys
from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.events.device import DeviceWithdrawn
from gpuledger.events.node import NodeLabelled
from gpuledger.events.payload import Payload
from gpuledger.events.pod import PodGone, PodObserved
from support.pools import MET, PoolsLog, applied, described, detected, marked, pool, prepared, released, state

SMALL, LARGE = 20, 200
"""How many pools there are, each with a node of two devices. Both are beyond what an index keeps in a tuple."""

FACTS: dict[str, tuple[str, Payload]] = {
    "a device is requested": ("n1-1", marked("p1")),
    "a device is set up": ("n2-0", applied("ns/p2")),
    "a device is requested no more": ("n3-0", marked()),
    "a device is released": ("n3-0", released("ns/p3")),
    "a device is described": ("n4-0", described(ignored=True)),
    "a device faults": ("n5-0", state("Faulted")),
    "a device goes": ("n6-0", DeviceWithdrawn()),
    "a device comes": ("n7-2", detected("n7")),
    "a device that a pool approves": ("n8-1", marked(own="8")),
    "a node is labelled": ("n9", NodeLabelled(uid="n", labels={"zone": "b"})),
    "a node falls": ("n10", prepared(ready=False)),
    "a pool is changed": ("ns/p11", pool(slices_per_unit=2)),
    "a pool is deleted": ("ns/p12", pool(deleting=True)),
    "a pool comes": ("ns/new", pool()),
    "a pod asks": ("ns/new", PodObserved(uid="u", requests={"gpu.deckhouse.io/p13": 1})),
    "a pod is bound": ("ns/pod14", PodObserved(uid="u", node="n14", requests={"gpu.deckhouse.io/p14": 1})),
    "a pod goes": ("ns/pod15", PodGone(uid="u")),
}
"""Each about a node or pool of its own, so that all can be recorded in one cluster."""


def cluster(pools: int) -> PoolsLog:
    """Pools that hold a device each, which a pod requests, and as many that approve devices by a label of their own."""
    world = PoolsLog()
    world.record(MODULE_CONFIG, MET)
    for number in range(pools):
        node = f"n{number}"
        world.record(node, prepared())
        for device in (f"{node}-0", f"{node}-1"):
            world.record(device, detected(node))
            world.record(device, state("Ready"))
        world.record(f"ns/p{number}", pool(node_selector={"labels": {"zone": "a"}}))
        world.record(f"own{number}", pool(requires_annotation=False, auto_approve={"labels": {"own": f"{number}"}}))
        world.record(node, NodeLabelled(uid="n", labels={"zone": "a"}))
        world.record(f"{node}-0", marked(f"p{number}"))
        world.record(f"{node}-0", applied(f"ns/p{number}"))
        world.record(f"ns/pod{number}", PodObserved(uid="u", requests={f"gpu.deckhouse.io/p{number}": 1}))
    return world


def work(world: PoolsLog, subject: str, data: Payload) -> int:
    """How many calls it takes to fold a fact and to decide what follows."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        world.record(subject, data)
    finally:
        sys.setprofile(None)
    return calls


@pytest.fixture(scope="module")
def clusters() -> dict[int, PoolsLog]:
    return {size: cluster(size) for size in (SMALL, LARGE)}


@pytest.mark.parametrize("what", FACTS)
def test_a_fact_costs_the_same_in_a_cluster_ten_times_as_large(clusters: dict[int, PoolsLog], what: str) -> None:
    small, large = (work(clusters[size], *FACTS[what]) for size in (SMALL, LARGE))
    assert large <= 1.1 * small


def test_the_cost_of_what_concerns_everything_does_grow(clusters: dict[int, PoolsLog]) -> None:
    """The measure measures: what touches every device is seen to."""
    small, large = (work(clusters[size], MODULE_CONFIG, MET) for size in (SMALL, LARGE))
    assert large > 5 * small
