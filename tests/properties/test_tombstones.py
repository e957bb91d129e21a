"""What is gone leaves rows for a while: long enough for late facts, and the same from rows as from the start."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.inventory.facts import InventoryFacts
from gpuledger.domain.inventory.folds import HANDLERS as INVENTORY
from gpuledger.domain.pools.folds import HANDLERS as POOLS
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.domain.table import Table
from gpuledger.domain.tombstones import LATE_MAX
from gpuledger.events.device import DeviceMarked
from gpuledger.events.node import (
    NodeBootstrapWithdrawn,
    NodeDevicesWanted,
    NodeFeaturesGone,
    NodeGone,
    NodeLabelled,
    NodeObserved,
    NodeUnlabelled,
    WantedDevice,
)
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolGone
from support.events import START, SubjectFact, event
from support.gpu_states import CARD, ready
from support.inventory import card, cards_seen, features, observed

LATE_DAYS_MAX = LATE_MAX.days
NODES = ("n1", "n2")
WANTED = WantedDevice(device="d2", pool="team/a", resource="gpu.deckhouse.io/a", unit="Card", asked_at=START)
OF_NODES: list[Payload] = [
    observed("20b5"), NodeGone(uid="u"), features("20b5"), NodeFeaturesGone(), cards_seen(card("GPU-1")), cards_seen(),
]  # fmt: skip
OF_POOLS: list[SubjectFact] = [
    ("team/a", CARD), ("team/a", PoolGone(uid="u")), ("team/b", CARD), ("team/b", PoolGone(uid="u")),
    ("n1", NodeLabelled(uid="u", labels={"zone": "a"})), ("n1", NodeUnlabelled()), ("n2", NodeUnlabelled()),
    ("n1", ready()), ("n1", NodeBootstrapWithdrawn()), ("d1", DeviceMarked()), ("d1", DeviceMarked(labels={"a": "b"})),
    ("n1", NodeDevicesWanted(devices=(WANTED,))), ("n1", NodeDevicesWanted()),
]  # fmt: skip


class Recorded(NamedTuple):
    """A fact, how many days before its recording it happened, and how many after the one before that is."""

    fact: SubjectFact
    late_days: int
    after_days: int


def recorded(facts: st.SearchStrategy[SubjectFact], late_days: int) -> st.SearchStrategy[list[Recorded]]:
    days = st.sampled_from([0, 0, 1, 3, 9])
    return st.lists(st.builds(Recorded, facts, st.integers(0, late_days), days), max_size=25)


MARKS: list[Payload] = [DeviceMarked(), DeviceMarked(labels={"a": "b"})]
OF_INVENTORY = st.one_of(
    st.tuples(st.sampled_from(NODES), st.sampled_from(OF_NODES)), st.tuples(st.just("d1"), st.sampled_from(MARKS))
)


def facts_of(records: Sequence[Recorded]) -> list[Fact]:
    found, day = [], 30
    for number, ((subject, data), late_days, after_days) in enumerate(records, 1):
        day += after_days
        one = event(data, subject, number=number, at=24 * (day - late_days) + number / 100)
        recorded_at = START + timedelta(days=day, hours=1)
        found.append(Fact(one, number, int(recorded_at.timestamp()) * 1_000_000_000))
    return found


def fold(state: Any, handlers: Handlers, facts: Sequence[Fact]) -> None:
    for fact in facts:
        handlers[type(fact.event.data)](state, fact, fact.event.data)


def rows(state: Any) -> dict[str, dict[Any, Any]]:
    tables: Mapping[str, Table[Any]] = state.tables()
    return {name: dict(table.rows) for name, table in tables.items()}


def from_rows(state: Any) -> Any:
    """The state that another process loads."""
    again = type(state)()
    for name, table in again.tables().items():
        table.load(state.tables()[name].rows.values())
    return again


@given(recorded(OF_INVENTORY, 12), st.integers(0, 25))
def test_nodes_end_alike_from_rows_and_from_the_start(records: list[Recorded], at: int) -> None:
    _check_reload(InventoryFacts, INVENTORY, facts_of(records), at)


@given(recorded(st.sampled_from(OF_POOLS), 12), st.integers(0, 25))
def test_pools_end_alike_from_rows_and_from_the_start(records: list[Recorded], at: int) -> None:
    _check_reload(PoolFacts, POOLS, facts_of(records), at)


def _check_reload(new: type[Any], handlers: Handlers, facts: list[Fact], at: int) -> None:
    whole, begun = new(), new()
    fold(whole, handlers, facts)
    fold(begun, handlers, facts[:at])
    resumed = from_rows(begun)
    fold(resumed, handlers, facts[at:])
    assert rows(resumed) == rows(whole)


def test_a_node_that_is_gone_for_long_leaves_nothing() -> None:
    gone: list[Recorded] = [
        Recorded(("n1", observed("20b5")), 0, 0),
        Recorded(("n1", cards_seen(card("GPU-1"))), 0, 0),
        Recorded(("n1", NodeGone(uid="u")), 0, 1),
        Recorded(("n1", cards_seen(card("GPU-1"))), 2, 0),
    ]
    state = InventoryFacts()
    fold(state, INVENTORY, facts_of([*gone, Recorded(("n2", NodeObserved(uid="u")), 0, LATE_DAYS_MAX - 1)]))
    assert set(state.node_facts.rows) == {"n1", "n2"}
    state = InventoryFacts()
    fold(state, INVENTORY, facts_of([*gone, Recorded(("n2", NodeObserved(uid="u")), 0, LATE_DAYS_MAX + 2)]))
    assert set(state.node_facts.rows) == {"n2"}
    assert not state.report.rows
    assert not state.slot.rows


def test_a_node_with_a_feature_or_an_agent_is_kept() -> None:
    later = Recorded(("n2", NodeObserved(uid="u")), 0, LATE_DAYS_MAX + 2)
    for data in (features("20b5"), observed("20b5")):
        state = InventoryFacts()
        fold(state, INVENTORY, facts_of([Recorded(("n1", data), 0, 0), later]))
        assert set(state.node_facts.rows) == {"n1", "n2"}


def test_pools_and_nodes_that_are_gone_for_long_leave_nothing() -> None:
    records = [
        Recorded(("team/a", CARD), 0, 0),
        Recorded(("team/a", PoolGone(uid="u")), 0, 0),
        Recorded(("n1", NodeLabelled(uid="u", labels={"zone": "a"})), 0, 0),
        Recorded(("n1", ready()), 0, 0),
        Recorded(("n1", NodeUnlabelled()), 0, 0),
        Recorded(("n1", NodeBootstrapWithdrawn()), 0, 0),
        Recorded(("n3", NodeBootstrapWithdrawn()), 0, 0),
        Recorded(("d1", DeviceMarked()), 0, 0),
        Recorded(("n1", NodeDevicesWanted()), 0, 0),
        Recorded(("n2", NodeDevicesWanted()), 0, 0),
        Recorded(("n2", NodeDevicesWanted(devices=(WANTED,))), 0, 0),
        Recorded(("d2", DeviceMarked(labels={"a": "b"})), 0, 0),
        Recorded(("d2", DeviceMarked(annotations={"a": "b"})), 0, LATE_DAYS_MAX + 1),
        Recorded(("team/b", CARD), 0, 0),
        Recorded(("n2", NodeLabelled(uid="u", labels={"zone": "a"})), 0, 0),
    ]
    state = PoolFacts()
    fold(state, POOLS, facts_of(records[:-3]))
    assert set(state.orders.rows) == {"n1", "n2"}
    assert (set(state.end.rows), set(state.node.rows), set(state.mark.rows)) == ({"team/a"}, {"n1"}, {"d1", "d2"})
    fold(state, POOLS, facts_of(records)[-3:])
    assert (set(state.end.rows), set(state.node.rows), set(state.mark.rows)) == (set(), {"n2"}, {"d2"})
    assert set(state.orders.rows) == {"n2"}


@given(st.permutations(range(6)), st.lists(st.sampled_from(OF_POOLS[:6]), min_size=6, max_size=6))
def test_the_order_of_recording_does_not_matter_within_the_bound(order: list[int], facts: list[SubjectFact]) -> None:
    """Each fact is recorded within the bound of its time, in whatever order, and a later one ends what has ended."""
    ends = ("n9", NodeUnlabelled()), ("team/z", PoolGone(uid="u"))

    def rows_in(indexes: Sequence[int]) -> Any:
        state = PoolFacts()
        made = [event(facts[index][1], facts[index][0], number=index + 1, at=24 * (20 + index)) for index in indexes]
        made += [event(data, subject, number=9, at=24 * 40) for subject, data in ends]
        seconds = [int((START + timedelta(days=day)).timestamp()) for day in [26] * len(indexes) + [40, 40]]
        made_facts = [Fact(one, 1, at * 1_000_000_000) for one, at in zip(made, seconds, strict=True)]
        fold(state, POOLS, made_facts)
        found = rows(state)
        return {name: found[name] for name in ("pool_end", "pool_node", "gpu_pool")}

    assert rows_in(order) == rows_in(range(6))
