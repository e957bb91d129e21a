"""Streams of facts about slices, claims, taint rules and nodes for properties: small worlds with all that is odd.

Few names and few amounts, so that objects meet: one pool name under two drivers, devices of one name in several
slices, claims on what no slice has, slices that move from pool to pool, amounts below nothing.
"""

from typing import Any

from hypothesis import strategies as st

from gpuledger.events.claim import ClaimAllocated, ClaimReleased, ClaimRequested, Result
from gpuledger.events.node import NodeLabelled, NodeUnlabelled
from gpuledger.events.reach import NodeReach
from gpuledger.events.slice import (
    CounterSet,
    DeviceCapacity,
    RequestPolicy,
    SliceDevice,
    SlicePublished,
    SliceWithdrawn,
    Taint,
    TaintRuleLifted,
    TaintRuleSet,
)
from support.dra import ANYWHERE, labelled, on
from support.events import SubjectFact

STORY_LENGTH_MAX = 14

drivers = st.sampled_from(["d1.example.com", "d1.example.com", "d2.example.com"])
pools = st.sampled_from(["p", "p", "q"])
devices = st.sampled_from(["gpu-0", "gpu-1", "gpu-2"])
uids = st.sampled_from(["u1", "u2"])
amounts = st.sampled_from(["0", "1", "2", "1500m", "4", "1Ki", "2Ki", "1500500u", "-1"])
"""Quantities in their canonical texts."""

texts = st.one_of(
    st.builds("{}{}".format, st.integers(-(10**6), 10**6), st.sampled_from(["", "n", "u", "m", "k", "M", "Ki", "Gi"])),
    st.builds(
        "{}.{}{}".format, st.integers(0, 10**4), st.integers(0, 999), st.sampled_from(["", "k", "G", "Ki", "Mi"])
    ),
    st.builds("{}e{}".format, st.integers(-999, 999), st.integers(-6, 9)),
)
"""Quantities as people write them, none of them smaller than a billionth."""

_maybe = st.none() | amounts
_names = st.sampled_from(["m", "n"])
policies = st.builds(
    RequestPolicy,
    default=_maybe,
    values=st.lists(amounts, max_size=2).map(tuple),
    min=_maybe,
    max=_maybe,
    step=_maybe,
)
capacities = st.dictionaries(
    _names, st.builds(DeviceCapacity, value=amounts, policy=st.none() | st.none() | policies), max_size=2
)
taints = st.builds(Taint, key=st.just("k"), effect=st.sampled_from(["NoSchedule", "NoExecute", "None"]))
_counted = st.dictionaries(_names, amounts, max_size=2)
reaches = st.sampled_from([on("n1"), on("n1"), on("n2"), ANYWHERE, ANYWHERE, labelled("zone", "a")])
slice_devices = st.builds(
    SliceDevice,
    name=devices,
    shareable=st.booleans(),
    capacity=capacities,
    consumes=st.dictionaries(st.sampled_from(["a", "b"]), _counted, max_size=1),
    taints=st.lists(taints, max_size=1).map(tuple),
    reach=st.none() | reaches,
)
_counter_sets = st.lists(
    st.builds(CounterSet, name=st.sampled_from(["a", "b"]), counters=_counted), min_size=1, max_size=2
).map(tuple)
_plain_devices = st.lists(
    st.builds(
        SliceDevice,
        name=devices,
        shareable=st.booleans(),
        capacity=st.just({"m": DeviceCapacity(value="4")}),
        consumes=st.sampled_from([{}, {"a": {"m": "2"}}, {"a": {"m": "4"}}]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one.name,
)
_offering = st.fixed_dictionaries({"devices": st.lists(slice_devices, max_size=3).map(tuple)})
_plain = st.fixed_dictionaries({"devices": _plain_devices.map(tuple)})
_counting = st.fixed_dictionaries({"counter_sets": _counter_sets})
odd_slices = st.builds(
    lambda offers, **fields: SlicePublished(**fields, **offers),
    offers=st.one_of(_offering, _offering, _counting),
    uid=uids,
    generation=st.integers(0, 2),
    driver=drivers,
    pool=pools,
    pool_generation=st.integers(1, 2),
    slice_count=st.sampled_from([0, 1, 1, 2, 2, 3]),
    reach=st.none() | reaches,
)
plain_slices = st.builds(
    lambda offers, **fields: SlicePublished(uid="u1", driver="d1.example.com", pool="p", **fields, **offers),
    offers=st.one_of(_plain, _plain, st.just({"counter_sets": (CounterSet(name="a", counters={"m": "4"}),)})),
    generation=st.integers(0, 2),
    pool_generation=st.sampled_from([1, 1, 1, 2]),
    slice_count=st.integers(1, 2),
    reach=reaches,
)
slices = st.one_of(plain_slices, plain_slices, odd_slices)
results = st.builds(
    Result,
    request=st.sampled_from(["r", "s"]),
    driver=st.sampled_from(["d1.example.com"] * 4 + ["d2.example.com"]),
    pool=st.sampled_from(["p"] * 4 + ["q"]),
    device=st.sampled_from(["gpu-0", "gpu-0", "gpu-1", "gpu-2"]),
    admin_access=st.sampled_from([False, False, False, True]),
    share=st.sampled_from([None, "x", "y"]),
    consumed=_counted,
)
claims = st.one_of(
    st.builds(ClaimAllocated, uid=uids, results=st.lists(results, max_size=3).map(tuple)),
    st.builds(ClaimAllocated, uid=uids, results=st.lists(results, min_size=1, max_size=2).map(tuple)),
    st.builds(ClaimRequested, uid=uids),
    st.just(ClaimReleased()),
)
rules = st.one_of(
    st.builds(
        TaintRuleSet,
        uid=uids,
        taint=taints,
        driver=st.none() | drivers,
        pool=st.none() | pools,
        device=st.none() | devices,
    ),
    st.just(TaintRuleLifted()),
)
labels = st.one_of(
    st.builds(NodeLabelled, uid=uids, labels=st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}])),
    st.just(NodeUnlabelled()),
)

_slice_facts = st.tuples(
    st.sampled_from(["s1", "s2", "s3"]), st.one_of(slices, slices, slices, st.just(SliceWithdrawn()))
)
_claim_facts = st.tuples(st.sampled_from(["ns/c1", "ns/c2", "ns/c3"]), claims)
_rule_facts = st.tuples(st.sampled_from(["t1", "t2"]), rules)
_node_facts = st.tuples(st.sampled_from(["n1", "n2"]), labels)
_facts: st.SearchStrategy[SubjectFact] = st.one_of(
    _slice_facts, _claim_facts, _slice_facts, _claim_facts, _slice_facts, _claim_facts, _rule_facts, _node_facts
)
_COUNTERS = (CounterSet(name="a", counters={"m": "4"}),)
_PARTITIONS = tuple(SliceDevice(name=f"gpu-{n}", consumes={"a": {"m": amount}}) for n, amount in enumerate("224"))
_SHARED = tuple(
    SliceDevice(name=f"gpu-{n}", shareable=n > 0, capacity={"m": DeviceCapacity(value="4")}) for n in range(3)
)


def _first(name: str, count: int, reach: NodeReach, **offers: Any) -> SubjectFact:
    fact = SlicePublished(
        uid="u1", driver="d1.example.com", pool="p", pool_generation=1, slice_count=count, reach=reach, **offers
    )
    return name, fact


_beginnings = st.sampled_from(
    [
        [],
        [_first("s1", 1, on("n1"), devices=_SHARED)],
        [_first("s1", 1, ANYWHERE, devices=_SHARED[:2]), _first("s2", 1, on("n2"), devices=_SHARED)],
        [_first("s1", 2, on("n1"), devices=_PARTITIONS), _first("s2", 2, on("n1"), counter_sets=_COUNTERS)],
        [_first("s2", 2, on("n2"), devices=_PARTITIONS), _first("s1", 2, ANYWHERE, counter_sets=_COUNTERS)],
        [_first("s1", 1, on("n1"), devices=_SHARED), _first("s2", 1, on("n2"), devices=_SHARED[1:])],
        [_first("s1", 2, ANYWHERE, devices=_SHARED[:1]), _first("s2", 2, labelled("zone", "a"), devices=_SHARED[1:])],
    ]
)
stories = st.builds(lambda begun, facts: [*begun, *facts], _beginnings, st.lists(_facts, max_size=STORY_LENGTH_MAX - 2))
"""Facts in the order of a log; most begin with pools that are in order."""


@st.composite
def interleavings(draw: st.DrawFn, story: list[SubjectFact]) -> list[SubjectFact]:
    """The same facts in another order that keeps each object's own."""
    queues: dict[tuple[str, str], list[SubjectFact]] = {}
    for name, data in story:
        queues.setdefault((data.AGGREGATE, name), []).append((name, data))
    turns = draw(st.permutations([key for key, queue in queues.items() for _ in queue]))
    return [queues[key].pop(0) for key in turns]
