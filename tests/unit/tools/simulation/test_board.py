"""Nodes of a fleet that share their devices: their label, places of cards and NICs, and no device plugin."""

import pytest

from gpuledger.api.sharing import SharingNames
from gpuledger.deciders.sharing.offers import switch_of
from gpuledger.tools.simulation import labels
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec, FleetSpecError, SlotId

NAMES = SharingNames("gpu.example.com")


def test_the_last_nodes_share_their_cards() -> None:
    fleet = Fleet(FleetSpec.parse("nodes=4,gpus=8,profile=h200,sharing=1"), 1, NAMES)
    *others, last = fleet.nodes.values()
    assert [node.shared_by for node in others] == [None] * 3
    assert labels.kubelet_labels(last)["node.gpu.example.com/gpu-sharing"] == "enabled"
    assert last.units(0) == ()
    assert all(node.units(0) for node in others)
    assert fleet.nics(others[0].name) == ()


def test_cards_and_nics_share_switches() -> None:
    fleet = Fleet(FleetSpec(1, 8, sharing=1), 1, NAMES)
    (node,) = fleet.nodes.values()
    cards = [fleet.card(SlotId(node.name, slot), 0) for slot in range(8)]
    switches = [switch_of(card.pci_path, card.pci_address) for card in cards]
    assert (
        switches[::2] == switches[1::2] == [switch_of(nic.pci_path, nic.pci_address) for nic in fleet.nics(node.name)]
    )
    assert len(set(switches)) == 4
    assert [card.numa_node for card in cards] == [0] * 4 + [1] * 4
    assert [card.minor for card in cards] == list(range(8))


def test_other_nodes_are_as_before() -> None:
    plain, sharing = Fleet(FleetSpec(2, 2), 1), Fleet(FleetSpec(2, 2, sharing=1), 1)
    name = next(iter(plain.nodes))
    assert plain.nodes[name] == sharing.nodes[name]
    assert plain.card(SlotId(name, 0), 0) == sharing.card(SlotId(name, 0), 0)
    assert str(FleetSpec.parse("sharing=2")) == "nodes=4,gpus=8,profile=h200,sharing=2"


def test_partitioned_nodes_do_not_share() -> None:
    fleet = Fleet(FleetSpec(2, 2, "mig-a100", sharing=2), 1)
    assert {node.shared_by for node in fleet.nodes.values()} == {None}


@pytest.mark.parametrize("text", ["sharing=0", "sharing=x"])
def test_no_such_number(text: str) -> None:
    with pytest.raises(FleetSpecError):
        FleetSpec.parse(text)
