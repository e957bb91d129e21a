"""What holds for every stream of facts about nodes and cards: one device for each card, decided once."""

from typing import Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from gpuledger.deciders.inventory.decide import on_fact
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.domain.fact import Fact
from gpuledger.domain.inventory.claims import replaced_cards
from gpuledger.domain.inventory.facts import InventoryFacts
from gpuledger.events.device import Card
from gpuledger.events.node import NodeFeaturesGone, NodeGone, NodeObserved
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import GENERATION, event, rows_of
from support.inventory import MODULE, RecordedInventory, card, cards_seen, features, labels, observed, source_of


class Report(NamedTuple):
    """A fact: its hour, its subject, and its data."""

    at: int
    subject: str
    data: Payload


models = st.sampled_from(["2203", "20b5"])
lists = st.lists(models, max_size=3)
enabled = st.sampled_from([{}, {"gpu.deckhouse.io/enabled": "false"}])


def _node(devices: list[str], product: str | None, mark: dict[str, str]) -> NodeObserved:
    recorded = {} if product is None else {"nvidia.com/gpu.product": product}
    return NodeObserved(uid="u", labels={**labels(*devices), **recorded, **mark}, nfd_version="v0.17.0")


def _cards(uuids: list[str], kinds: list[str]) -> tuple[Card, ...]:
    return tuple(card(uuid, slot, kind) for slot, (uuid, kind) in enumerate(zip(uuids, kinds, strict=False)))


MODEL_OF = {"GPU-a": "2203", "GPU-b": "2203", "GPU-c": "20b5"}
reports = st.permutations(sorted(MODEL_OF)).flatmap(
    lambda uuids: st.integers(0, 3).map(
        lambda n: cards_seen(*_cards(uuids[:n], [MODEL_OF[uuid] for uuid in uuids[:n]]))
    )
)
node_facts = st.one_of(
    reports,
    reports,
    st.builds(_node, lists, st.sampled_from([None, "Tesla-T4", "NVIDIA-A100"]), enabled),
    lists.map(lambda devices: features(*devices)),
    st.just(NodeGone()),
    st.just(NodeFeaturesGone()),
)
settings = st.builds(SettingsChanged, enabled_by_default=st.booleans())
report_lists = st.lists(
    st.builds(Report, st.integers(1, 40), st.sampled_from(["n1", "n2"]), node_facts)
    | st.builds(Report, st.integers(1, 40), st.just(MODULE), settings),
    max_size=12,
    unique_by=lambda report: report.at,
)
START = Report(0, "cpu", observed())
"""Node Feature Discovery is there: without it nothing happens, and what happened before depends on when it came."""

SURVEYED = Report(0, "cpu", cards_seen())
"""The agent of another node stands in for it."""


def recorded(reports: list[Report], start: Report = START) -> RecordedInventory:
    inventory = RecordedInventory()
    for report in (start, *reports):
        inventory.record(*report)
    return inventory


def devices_of(inventory: RecordedInventory) -> dict[tuple[str, str], tuple[object, ...]]:
    """The devices apart from their names and ids, which they got from whoever spoke first, and from when and where."""
    return {
        (row.node, row.card): (row.provisional, row.managed, row.missing, row.missing or row.slot, row[14:-1])
        for row in inventory.devices()
    }


def nodes_of(inventory: RecordedInventory) -> dict[str, object]:
    conditions = {key: row[2:5] for key, row in inventory.state.condition.rows.items()}
    return {
        node: (row.present, conditions[node, "InventoryComplete"]) for node, row in inventory.state.node.rows.items()
    }


@given(reports=report_lists, start=st.sampled_from([START, SURVEYED]), data=st.data())
def test_any_order_of_recording_leads_to_the_same_devices(
    reports: list[Report], start: Report, data: st.DataObject
) -> None:
    in_time = recorded(sorted(reports, key=lambda report: report.at), start)
    shuffled = recorded(data.draw(st.permutations(reports)), start)
    assert devices_of(shuffled) == devices_of(in_time)
    assert nodes_of(shuffled) == nodes_of(in_time)


@given(reports=report_lists)
def test_what_was_decided_is_not_decided_again(reports: list[Report]) -> None:
    inventory = RecordedInventory()
    for number, report in enumerate((START, *reports), 1):
        inventory.record(*report)
        one = event(report.data, report.subject, at=report.at, source=source_of(report.data, report.subject))
        assert list(on_fact(inventory.state, Fact(one, number, 0))) == []
    for report in reports:
        assert inventory.record(*report) == []


@given(reports=report_lists)
def test_an_agent_elsewhere_stands_in_for_node_feature_discovery_elsewhere(reports: list[Report]) -> None:
    """Whatever the nodes' own reports are, both lead to the same inventory."""
    assert devices_of(recorded(reports, SURVEYED)) == devices_of(recorded(reports))
    assert nodes_of(recorded(reports, SURVEYED)) == nodes_of(recorded(reports))


@given(reports=report_lists)
def test_nodes_are_counted_as_their_facts_say(reports: list[Report]) -> None:
    state = recorded(reports).state
    nodes = [row for row in state.node_facts.rows.values() if row.exists]
    count = state.nfd_count()
    assert (count.nodes, count.surveyed) == (len(nodes), sum(row.is_surveyed for row in nodes))


@given(reports=report_lists)
def test_a_replay_of_the_log_decides_the_same(reports: list[Report]) -> None:
    inventory = recorded(reports)
    again = Fold(InventoryProjection(), GENERATION, numbering=Numbering("own", 1))
    again.apply_all(inventory.log)
    assert rows_of(again) == rows_of(inventory.fold)
    assert again.outstanding() == []


@given(reports=report_lists, at=st.integers(0, 12))
def test_a_restart_changes_nothing(reports: list[Report], at: int) -> None:
    inventory, restarted = recorded(reports), RecordedInventory()
    for number, report in enumerate((START, *reports)):
        if number == at:
            _restart(restarted)
        restarted.record(*report)
    assert rows_of(restarted.fold) == rows_of(inventory.fold)


def _restart(inventory: RecordedInventory) -> None:
    """Begin again with the rows alone, as they come back from their store."""
    state = InventoryFacts()
    before: dict[str, Any] = dict(inventory.state.tables())
    for name, table in state.tables().items():
        table.load(sorted(before[name].rows.values(), key=str))
    fold = inventory.fold
    inventory.fold = Fold(
        InventoryProjection(), GENERATION, state=state, seen=fold.seen, numbering=fold.numbering, sequence=fold.sequence
    )


@given(reports=report_lists)
def test_a_card_is_one_device_and_a_name_is_for_life(reports: list[Report]) -> None:
    inventory = RecordedInventory()
    names: dict[str, str] = {}
    given: dict[str, str] = {}
    for report in (START, *reports):
        for decision in inventory.record(*report):
            kind = decision.data.EVENT
            if kind == "detected":
                assert decision.subject not in names
                names[decision.subject] = decision.subject
            elif kind == "withdrawn":
                del names[decision.subject]
        cards = [row.card for row in inventory.devices()]
        assert len(cards) == len(set(cards))
        ids = {row.name: row.inventory_id for row in inventory.devices() if row.inventory_id}
        assert len(ids) == len(set(ids.values()))
        assert all(ids[name] == given[name] for name in ids.keys() & given.keys())
        given = ids
        assert sorted(names) == inventory.names()
        assert all(len(name) <= 63 for name in names)
        attached = [row.slot for row in inventory.devices() if row.slot is not None]
        assert len(attached) == len(set(attached))


@given(reports=report_lists)
@example(
    reports=[
        Report(2, "n1", cards_seen(*_cards(["GPU-a", "GPU-b"], [MODEL_OF["GPU-a"], MODEL_OF["GPU-b"]]))),
        Report(4, "n1", cards_seen(*_cards(["GPU-a"], [MODEL_OF["GPU-a"]]))),
        Report(3, "n1", cards_seen(*_cards(["GPU-b"], [MODEL_OF["GPU-b"]]))),
    ]
)  # a late report says in which slot the card was, and another one is there since
def test_only_a_gone_node_or_a_card_that_moved_or_was_replaced_takes_a_device_away(reports: list[Report]) -> None:
    inventory = RecordedInventory()
    for report in (START, *reports):
        before = inventory.devices()
        inventory.record(*report)
        left = {row.name for row in inventory.devices()}
        for row in before:
            if row.name not in left:
                sightings = list(inventory.state.report.rows.values())
                places = {row.pci_address, *(one.pci_address for one in sightings if one.card == row.card)}
                is_elsewhere = any(other.node != row.node for other in sightings if other.reporter == "agent")
                slots = inventory.state.slot.where("node", row.node)
                taken = any(slot.card != row.card and slot.pci_address in places for slot in slots)
                is_replaced = taken or (row.provisional and replaced_cards(inventory.state, row.node))
                is_gone = inventory.state.node_facts.rows[row.node].gone_at is not None
                assert is_gone or is_elsewhere or is_replaced
