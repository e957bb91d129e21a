"""Facts that have nothing to do with one another lead to the same assignments in whatever order they are recorded."""

from datetime import UTC, datetime
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.domain.pools.orders import last_orders
from gpuledger.events.device import Hardware
from gpuledger.events.node import NodeLabelled
from gpuledger.events.payload import Payload
from gpuledger.events.pod import PodObserved
from gpuledger.events.pool import PoolGone
from gpuledger.events.settings import SettingsChanged
from support.pools import A100, MET, PoolsLog, applied, described, detected, marked, pool, prepared, released, state

NODES = ("n1", "n2")
PODS = ("ns/one", "ns/two")
DEVICES = tuple(f"{node}-{number}" for node in NODES for number in range(2))
OTHER = Hardware(product="NVIDIA H100", pci_vendor="10de", pci_device="2330")
GOLD = {"requires_annotation": False, "auto_approve": {"labels": {"tier": "gold"}}}
ANSWERS_MAX = 20
EARLIEST = datetime.min.replace(tzinfo=UTC)
OPEN = ("Pending", "Unassigning")


class TimedFact(NamedTuple):
    """A fact: its hour, its subject, and its data."""

    at: int
    subject: str
    data: Payload


BEGIN = [
    *(TimedFact(0, device, detected(device.partition("-")[0])) for device in DEVICES),
    *(TimedFact(0, device, state("Ready")) for device in DEVICES),
    *(TimedFact(0, node, prepared()) for node in NODES),
    TimedFact(0, MODULE_CONFIG, MET),
]
"""What is there; which pool a device has meanwhile depends on what was recorded first, so agents answer at the end."""

marks = st.one_of(
    st.sampled_from(["p", "zone", "gone", "nobody"]).map(marked),
    st.builds(marked, cluster=st.sampled_from(["q", "p"])),
    st.sampled_from([marked(), marked(tier="gold"), marked("p", cluster="q")]),
)
pools = st.fixed_dictionaries(
    {
        "ns/p": st.just(pool(include={"products": [A100.product]})),
        "ns/zone": st.just(pool(node_selector={"labels": {"zone": "a"}})),
        "q": st.sampled_from([pool(), pool(slices_per_unit=9), pool(maintenance="enabled"), pool(backend="DRA")]),
        "auto": st.just(pool(**GOLD)),
        "ns/gone": st.sampled_from([pool(), pool(deleting=True)]),
    }
)
changes = st.one_of(
    st.tuples(st.sampled_from(DEVICES), marks),
    st.tuples(
        st.sampled_from(NODES),
        st.sampled_from(["a", "b"]).map(lambda zone: NodeLabelled(uid="n", labels={"zone": zone})),
    ),
    st.just((MODULE_CONFIG, SettingsChanged(max_slices_per_device=16))),
    st.tuples(
        st.sampled_from(PODS),
        st.sampled_from([None, *NODES]).map(lambda node: PodObserved(uid="u", node=node, requests={"r": 1})),
    ),
)
lasting = st.one_of(
    st.sampled_from([described(OTHER), described(ignored=True), described(managed=False), state("Faulted")])
)
"""What other services decided counts in the order of the log; so each device has one of them at most."""


@st.composite
def histories(draw: st.DrawFn) -> list[TimedFact]:
    facts: list[tuple[str, Payload]] = [*draw(pools).items(), *draw(st.lists(changes, max_size=10))]
    facts += draw(st.dictionaries(st.sampled_from(DEVICES), lasting)).items()
    facts += [(pool_id, PoolGone()) for pool_id in draw(st.sets(st.sampled_from(["ns/p", "q", "auto"])))]
    return [TimedFact(at, subject, data) for at, (subject, data) in enumerate(facts, 1)]


def pools_after(facts: list[TimedFact]) -> PoolsLog:
    """The pools after all that was said, when faults are over and agents have answered all that they were asked."""
    world = PoolsLog()
    for fact in (*BEGIN, *facts):
        world.record(fact.subject, fact.data, at=fact.at)
    for device in DEVICES:
        if world.state.device.rows[device].prepared == "Faulted":
            world.record(device, state("Ready"), at=100)
    for _ in range(ANSWERS_MAX):
        open_ones = [row for row in sorted(world.state.assignment.rows.values()) if row.phase in OPEN]
        if not open_ones:
            return world
        for row in open_ones:
            assert row.pool is not None
            answer = released(row.pool) if row.phase == "Unassigning" else applied(row.pool, 7)
            world.record(row.device, answer, at=100 + len(world.log))
    raise AssertionError("Agents answer, and it never ends.")


def standing(world: PoolsLog) -> tuple[object, ...]:
    """The assignments without their times; the reason of a device that once had a pool shows its history."""
    return (
        {row.device: row[1:5] for row in world.state.assignment.rows.values() if row.reason != "NotAskedFor"},
        {row.pool: row[1:3] for row in world.state.total.rows.values()},
        {key: row[2:5] for key, row in world.state.condition.rows.items()},
        {
            one.device: one.model_copy(update={"asked_at": EARLIEST})
            for node in NODES
            for one in last_orders(world.state, node).values()
        },
        {row.pod: (row.node, row.observed_at) for row in world.state.pod.rows.values()},
    )


@given(facts=histories(), data=st.data())
def test_any_order_of_recording_leads_to_the_same_assignments(facts: list[TimedFact], data: st.DataObject) -> None:
    assert standing(pools_after(data.draw(st.permutations(facts)))) == standing(pools_after(facts))
