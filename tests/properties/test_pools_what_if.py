"""A hypothesis predicts what would happen, and one that is recorded already makes no difference."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.domain.pools.orders import last_orders
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import Hardware
from gpuledger.events.node import NodeLabelled
from gpuledger.events.pool import PoolDefined, PoolGone
from gpuledger.events.position import latest, number_of
from gpuledger.events.settings import SettingsChanged
from support.events import SubjectFact
from support.hypothetical import Comparison, compare
from support.pools import A100, PoolsLog, applied, described, marked, pool, prepared, refused, released, state

NODES = ("n1", "n2")
DEVICES = ("n1-0", "n1-1", "n2-0")
POOLS = ("ns/p", "p", "ns/q", "auto")
OTHER = Hardware(product="NVIDIA H100", pci_vendor="10de", pci_device="2330")
GOLD: dict[str, Any] = {"requires_annotation": False, "auto_approve": {"labels": {"tier": "gold"}}}
OPEN = ("Pending", "Unassigning")
ANSWERS_MAX = 20


definitions = st.fixed_dictionaries(
    {},
    optional={
        "slices_per_unit": st.sampled_from([2, 9]),
        "devices_per_node_max": st.just(1),
        "include": st.just({"products": [A100.product]}),
        "node_selector": st.just({"labels": {"zone": "a"}}),
        "requires_annotation": st.just(False),
        "auto_approve": st.just({"labels": {"tier": "gold"}}),
        "backend": st.just("DRA"),
        "maintenance": st.sampled_from(["enabled", "confirmed"]),
    },
).map(lambda definition: pool(**definition))
marks = st.sampled_from(
    [
        marked("p"),
        marked("q"),
        marked(cluster="p"),
        marked(cluster="auto"),
        marked("p", cluster="auto"),
        marked(),
        marked(tier="gold"),
    ]
)
shown = st.sampled_from([described(OTHER), described(), described(ignored=True)])
pool_ids, devices, nodes = st.sampled_from(POOLS), st.sampled_from(DEVICES), st.sampled_from(NODES)
subject_facts: st.SearchStrategy[SubjectFact] = st.one_of(
    st.tuples(pool_ids, definitions),
    st.tuples(devices, marks),
    st.tuples(devices, marks),
    st.tuples(devices, shown),
    st.tuples(devices, st.sampled_from([state("Ready"), state("Faulted")])),
    st.tuples(nodes, st.sampled_from([prepared(), prepared(ready=False)])),
    st.tuples(nodes, st.sampled_from(["a", "b"]).map(lambda zone: NodeLabelled(uid="n", labels={"zone": zone}))),
    st.tuples(pool_ids, st.just(PoolGone())),
    st.just((MODULE_CONFIG, SettingsChanged(max_slices_per_device=16))),
    st.tuples(devices, st.sampled_from([applied, refused, released])),
)
"""The last one is the agent's report on the device and its pool."""


@st.composite
def histories(draw: st.DrawFn) -> PoolsLog:
    history = PoolsLog().begin("n1", devices=2).begin("n2")
    for subject, data in draw(st.lists(subject_facts, min_size=3, max_size=14)):
        if not callable(data):
            history.record(subject, data)
        elif (held := history.of(subject)[0]) is not None:
            history.record(subject, data(held))
    return history


def standing(facts: PoolFacts, *, without: frozenset[str] = frozenset()) -> tuple[object, ...]:
    """Who has which device, and what pools offer."""
    return (
        {row.device: row[1:3] for row in facts.assignment.rows.values() if row.pool and row.device not in without},
        {row.pool: row.total for row in facts.total.rows.values()},
        {key: row[2:4] for key, row in facts.condition.rows.items()},
    )


def recorded(history: PoolsLog, pool_id: str) -> PoolDefined | None:
    row = history.state.pool.get(pool_id)
    return None if row is None else row.spec.definition


def really(
    history: PoolsLog, pool_id: str, definition: PoolDefined, was: dict[str, tuple[str | None, str | None]]
) -> None:
    """Apply the definition, and have agents carry out the orders that are new."""
    before = recorded(history, pool_id)
    if before is not None:
        definition = definition.model_copy(update={"uid": before.uid, "deleting": before.deleting})
    history.record(pool_id, definition)
    for _ in range(ANSWERS_MAX):
        open_rows = [row for row in sorted(history.state.assignment.rows.values()) if row.phase in OPEN]
        answers = [row for row in open_rows if was.get(row.device) != row[1:3] and not is_answered(history, row.device)]
        if not answers:
            return
        for row in answers:
            assert row.pool is not None
            history.record(row.device, released(row.pool) if row.phase == "Unassigning" else applied(row.pool))
    raise AssertionError("Agents answer, and it never ends.")


def is_answered(history: PoolsLog, device: str) -> bool:
    """Whether the agent has reported all that it can; a report does not assign a device that is not ready."""
    return history.of(device)[1] == "Pending" and history.state.setup.rows[device].report is not None


@given(history=histories(), pool_id=pool_ids)
def test_what_is_recorded_makes_no_difference(history: PoolsLog, pool_id: str) -> None:
    definition = recorded(history, pool_id)
    if definition is not None:
        found = compare(history, pool_id, definition, sets_maintenance=True)
        assert (found.devices, found.pools) == ({}, {})


@given(history=histories(), pool_id=pool_ids, data=st.data())
def test_what_was_never_defined_otherwise_makes_no_difference_at_any_time(
    history: PoolsLog, pool_id: str, data: st.DataObject
) -> None:
    """Comparison of a moment after which the pool was not defined anew."""
    definition = recorded(history, pool_id)
    if definition is not None:
        definitions = (one for one in history.log if f".pool.{one.subject.split('.')[4]}.defined" in one.subject)
        last = latest(one.sequence for one in definitions)
        since = data.draw(st.integers(number_of(last), len(history.log)))
        found = compare(history, pool_id, definition, since=since, sets_maintenance=True)
        assert (found.devices, found.pools) == ({}, {})


@given(history=histories(), pool_id=pool_ids, definition=definitions)
def test_a_hypothesis_predicts_what_happens(history: PoolsLog, pool_id: str, definition: PoolDefined) -> None:
    found: Comparison = compare(history, pool_id, definition, sets_maintenance=True)
    was = {row.device: (row.pool, row.phase) for row in history.state.assignment.rows.values()}
    really(history, pool_id, definition, was)
    assert found.answered.is_settled
    assert standing(found.world.state) == standing(history.state)


@given(history=histories(), pool_id=pool_ids, definition=definitions, data=st.data())
def test_hypothetical_pools_keep_the_invariants_of_pools(
    history: PoolsLog, pool_id: str, definition: PoolDefined, data: st.DataObject
) -> None:
    """Whenever it begins: what is in it is counted right, and nothing is left to be decided."""
    found = compare(history, pool_id, definition, since=data.draw(st.integers(0, len(history.log))))
    facts = found.world.state
    assert facts.take_devices() == []
    assert facts.take_pools() == []
    assert facts.take_nodes() == []
    ordered = {name: one.pool for node in NODES for name, one in last_orders(facts, node).items()}
    assert ordered == {row.device: row.pool for row in facts.assignment.rows.values() if row.pool is not None}
    held = [row.pool for row in facts.assignment.rows.values() if row.pool is not None]
    assert {row.pool: row.devices for row in facts.tally.rows.values()} == {one: held.count(one) for one in held}
