"""Conditions are whole, name the generation that they were observed at, and lead to no write by themselves."""

from typing import Any

import pytest

from gpuledger.domain.fact import Fact
from gpuledger.edge.kube.crds import node_feature_rule, shipped
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.instances import HANDLERS
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.fields import for_object, observe
from gpuledger.edge.statuswriter.objects import DesiredObject, Document, Key, Kind
from gpuledger.edge.statuswriter.reconcile.decide import Action, decide, is_drift
from gpuledger.edge.statuswriter.reconcile.planner import Planner
from gpuledger.events.device import Card, DeviceDetected, Hardware, MigInstance
from gpuledger.events.node import NodeDevicesObserved, NodeInventoryChanged, NodeInventoryWithdrawn
from gpuledger.events.pool import LabelSelector
from support.conditions import conditions_in, lacking
from support.dra_facts import device, published
from support.events import RecordedFact, folded, log_of, numbered
from support.gpu_states import (
    CARD,
    COMPLETE,
    INCOMPLETE,
    POOL,
    assigned,
    desired_state,
    found,
    offers,
    phase,
    prepared,
    source_of,
)

DEVICE, NODE, POOL_KEY, SLICE = Key(Kind.DEVICE, "w1-0"), Key(Kind.NODE, "w1"), Key(Kind.POOL, "a", "team"), "s1"
UUID = "GPU-1"
FACTS: list[tuple[str, Any]] = [
    *found("w1-0", "w1-1"),
    ("w1", NodeInventoryChanged(present=True, conditions=(INCOMPLETE,))),
    ("w1", phase("Validating", ("DriverMissing", "True"), ("ReadyForPooling", "False"))),
    ("w1-0", prepared("Faulted", "HardwareFault")),
    ("w1-1", prepared("Ready")),
    ("w1-1", assigned("Unassigning", reason="NotAskedFor")),
    (POOL, CARD),
    (POOL, offers(4, ("Supported", "True"), ("Misconfigured", "False"), generation=3)),
    (SLICE, published("p", [device("gpu-0")]).model_copy(update={"generation": 5})),
]


def stored(desired: DesiredObject, generation: int, **metadata: Any) -> Document:
    """The object as the API server keeps it."""
    meta = {"name": "w1-0", "uid": "u", "resourceVersion": "5", "generation": generation} | metadata
    meta |= {name: value for name, value in desired.main.items() if name != "spec"}
    return {"metadata": meta, "spec": desired.main.get("spec") or {}, "status": desired.status}


def planned(state: DesiredState, key: Key, generation: int = 1) -> DesiredObject:
    """What is written to an object of this generation."""
    planner = Planner(state, node_feature_rule())
    desired = planner.desired(key)
    assert desired is not None
    complete = for_object(key.kind, desired, observe(key.kind, stored(desired, generation)))
    assert complete is not None
    return complete


STATUSLESS = (Kind.RULE, Kind.KUBE_NODE)


def test_every_condition_has_all_its_fields() -> None:
    state = desired_state(*FACTS)
    keys = [key for key in Planner(state, node_feature_rule()).keys(None) if key.kind not in STATUSLESS]
    assert {key.kind for key in keys} == {Kind.DEVICE, Kind.NODE, Kind.POOL, Kind.SLICE}
    for key in keys:
        status = planned(state, key).status
        assert list(conditions_in(status))
        assert lacking(status) == []


@pytest.mark.parametrize(("key", "generation"), [(DEVICE, 7), (NODE, 7), (POOL_KEY, 3), (Key(Kind.SLICE, SLICE), 5)])
def test_the_generation_is_that_of_the_spec_that_was_observed(key: Key, generation: int) -> None:
    status = planned(desired_state(*FACTS), key, 7).status
    assert {one["observedGeneration"] for one in conditions_in(status)} == {generation}


def test_a_written_generation_leads_to_no_further_write() -> None:
    state = desired_state(*FACTS)
    for key in (DEVICE, NODE):
        first = planned(state, key, 1)
        kept = observe(key.kind, stored(first, 1))
        assert decide(key.kind, planned(state, key, 1), withdrawn=False, observed=kept) is Action.NOTHING
        later = observe(key.kind, stored(first, 2))
        assert decide(key.kind, planned(state, key, 2), withdrawn=False, observed=later) is Action.STATUS
        again = observe(key.kind, stored(planned(state, key, 2), 2))
        assert decide(key.kind, planned(state, key, 2), withdrawn=False, observed=again) is Action.NOTHING


def test_our_own_status_is_no_drift_at_its_generation() -> None:
    desired = Planner(desired_state(*FACTS), node_feature_rule()).desired(NODE)
    assert desired is not None
    complete = for_object(NODE.kind, desired, observe(NODE.kind, stored(desired, 1)))
    assert complete is not None
    kept = observe(NODE.kind, stored(complete, 1))
    assert not is_drift(NODE.kind, desired, kept, kept._replace(version="6"))
    assert is_drift(NODE.kind, desired, kept, observe(NODE.kind, stored(desired, 1)))


@pytest.mark.parametrize(
    ("spec", "status", "is_warned"),
    [
        ({"requires_annotation": False}, "True", True),
        ({"requires_annotation": False, "auto_approve": LabelSelector()}, "True", False),
        ({}, "True", False),
        ({"requires_annotation": False}, "False", False),
    ],
)
def test_a_pool_that_cannot_approve_says_so_in_one_condition(spec: Any, status: str, is_warned: bool) -> None:
    decided = offers(8, ("Configured", status), ("Supported", "True"))
    state = desired_state((POOL, CARD.model_copy(update=spec)), (POOL, decided))
    warned = [one["type"] for one in planned(state, POOL_KEY).status["conditions"] if "autoApprove" in one["message"]]
    assert warned == (["Configured"] if is_warned else [])


def card(*profiles: str, uuid: str = UUID) -> Card:
    """A card with an instance of each of these profiles."""
    instances = tuple(MigInstance(uuid=f"MIG-{at}", profile=name, start=at) for at, name in enumerate(profiles))
    return Card(
        uuid=uuid, mig_enabled=True, mig_instances=instances,
        pci_address="0000:17:00.0", pci_vendor="10de", pci_device="20b5",
    )  # fmt: skip


def with_instances(*reports: tuple[int, Any]) -> DesiredState:
    """A device, and after it what its node's agent reports at these hours."""
    hardware = Hardware(uuid=UUID, pci_vendor="10de", pci_device="20b5", mig_capable=True)
    facts = [
        (0, "w1-0", DeviceDetected(hardware=hardware, managed=True, node="w1", card=UUID)),
        (0, "w1", NodeInventoryChanged(present=True, conditions=(COMPLETE,))),
        *((at, "w1", data) for at, data in reports),
    ]
    log = log_of(numbered([RecordedFact(source_of(data), subject, at, data) for at, subject, data in facts]))
    state = folded(DesiredProjection(), log).state
    assert isinstance(state, DesiredState)
    return state


def observed(*cards: Card) -> NodeDevicesObserved:
    """All cards of the node."""
    return NodeDevicesObserved(cards=cards)


FIVE = observed(card("1g.10gb", "3g.40gb", "1g.10gb"), card("7g.80gb", uuid="GPU-2"))


@pytest.mark.parametrize(
    ("reports", "types"),
    [
        ([(1, FIVE)], [{"name": "1g.10gb", "count": 2}, {"name": "3g.40gb", "count": 1}]),
        ([(1, FIVE), (2, observed(card()))], None),
        ([(2, observed(card("7g.80gb"))), (1, FIVE)], [{"name": "7g.80gb", "count": 1}]),
        ([(1, FIVE), (2, observed())], None),
    ],
)
def test_a_device_shows_the_instances_that_its_card_has(reports: list[Any], types: Any) -> None:
    state = with_instances(*reports)
    assert planned(state, DEVICE).status["hardware"]["mig"].get("types") == types
    schema = next(crd for crd in shipped() if crd["spec"]["names"]["kind"] == "GPUDevice")
    mig = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["hardware"]
    assert mig["properties"]["mig"]["properties"]["types"]["x-kubernetes-list-map-keys"] == ["name"]


def test_only_another_layout_is_a_change() -> None:
    def changed(*reports: tuple[int, Any]) -> set[Key]:
        state = with_instances(*reports[:1])
        state.take_changed()
        for at, data in reports[1:]:
            (event,) = numbered([RecordedFact(source_of(data), "w1", at, data)])
            HANDLERS[type(data)](state.instances, Fact(event, 1, 0), data)
        return set(state.take_changed())

    assert changed((1, FIVE), (2, FIVE)) == set()
    assert changed((1, FIVE), (2, observed(card("7g.80gb")))) == {DEVICE}


def test_a_node_that_is_gone_has_no_instances() -> None:
    state = with_instances((1, FIVE), (2, NodeInventoryWithdrawn()))
    assert state.instances.of_card("w1", UUID) == {}
