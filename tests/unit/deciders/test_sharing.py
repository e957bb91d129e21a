"""Which devices nodes offer for sharing: labels, owners, health, minors and topology."""

from typing import Any

import pytest

from gpuledger.deciders.sharing.offers import switch_of
from gpuledger.domain.sharing.offered import totals
from gpuledger.events.device import DeviceWithdrawn
from gpuledger.events.node import NodeGone
from gpuledger.events.node_sharing import Nic, NodeCardsLeft
from gpuledger.events.sharing import NodeDevicesShared, PodDevicesReleased, PodSharingGone, SharedDevice
from support import pools
from support.offering import (
    MEMORY_MIB,
    POOL,
    UNLABELLED,
    WITHDRAWN,
    OfferingLog,
    address,
    bound_elsewhere,
    card,
    declaring,
    hardware,
    labelled,
    nics,
    observed,
    published,
    reserved,
    uuid,
)


def offers(decided: list[Any]) -> int:
    return sum(isinstance(one.data, NodeDevicesShared) for one in decided)


def test_a_node_without_the_label_shares_nothing_and_nothing_is_decided_of_it() -> None:
    log = OfferingLog().begin()
    assert not any(isinstance(one.data, NodeDevicesShared | NodeCardsLeft) for one in log.events)


def test_a_labelled_node_offers_its_cards_whole() -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled("Honor"))
    offer = log.offer()
    assert [(one.type, one.minor, one.id, one.healthy) for one in offer.devices] == [
        ("gpu", 0, uuid(0), True),
        ("gpu", 1, uuid(1), True),
    ]
    assert offer.devices[0].resources == {"gpu-core": 100, "gpu-memory": MEMORY_MIB << 20, "gpu-memory-ratio": 100}
    assert offer.devices[0].labels == {"model": "NVIDIA-H100-80GB-HBM3"}
    assert (offer.model, offer.partition_policy) == ("NVIDIA-H100-80GB-HBM3", "Honor")
    assert totals(offer.devices) == {"gpu-core": 200, "gpu-memory": 2 * MEMORY_MIB << 20, "gpu-memory-ratio": 200}


def test_nothing_is_offered_before_pools_have_left_the_cards() -> None:
    log = OfferingLog().begin()
    log.append("n1", labelled())
    while log.step("sharing"):
        pass
    assert log.offered() == []
    assert log.reasons() == {uuid(0): "NotLeftByPools", uuid(1): "NotLeftByPools"}
    log.settle()
    assert log.offered() == [uuid(0), uuid(1)]


def test_what_changes_nothing_is_not_decided_again() -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    assert offers(log.record("n1", labelled())) == 0
    assert offers(log.record("n1", observed(card(0), card(1)))) == 0
    assert offers(log.record("n1", labelled("Prefer"))) == 1
    assert log.offered() == [uuid(0), uuid(1)], "another policy takes nothing back"


def test_without_its_label_the_node_shares_nothing_any_more() -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    log.record("n1", UNLABELLED)
    assert not log.offer().enabled
    assert log.offered() == []


def test_a_card_that_pods_hold_leaves_sharing_with_the_last_of_them() -> None:
    log = OfferingLog().begin()
    log.record(POOL, pools.pool())
    log.record("n1", labelled())
    log.record("n1-0", pools.marked("whole"))
    log.record("team/a", reserved("u1", 0))
    log.record("team/b", bound_elsewhere("u2", 0))
    log.record("n1", UNLABELLED)
    assert [(one.id, one.healthy) for one in log.offer().devices] == [(uuid(0), False)]
    assert log.offer().enabled
    log.record("team/a", PodDevicesReleased(uid="u1", node="n1", reason="Gone"))
    assert log.offered() == [uuid(0)]
    log.record("team/b", PodSharingGone(uid="u2"))
    assert (log.offer().enabled, log.offered()) == (False, [])
    assert log.pools.state.assignment.rows["n1-0"].pool == POOL  # type: ignore[attr-defined]


def test_a_card_that_pods_hold_stays_though_the_label_goes_and_comes_back_before_pools_answer() -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    log.record("team/a", reserved("u", 0))
    for label in (UNLABELLED, labelled(), UNLABELLED):
        log.append("n1", label)
        while log.step("sharing"):
            pass
        assert [(one.id, one.healthy) for one in log.offer().devices] == [(uuid(0), False)]
        assert uuid(0) not in log.reasons()


def test_a_card_of_a_pool_stays_there_until_the_pool_releases_it() -> None:
    log = OfferingLog().begin()
    log.record(POOL, pools.pool())
    log.record("n1-0", pools.marked("whole"))
    log.record("n1-0", pools.applied(POOL))
    log.record("n1", labelled())
    assert log.offered() == [uuid(1)]
    assert log.reasons() == {uuid(0): "InPool"}
    log.record("n1-0", pools.marked())
    log.record("n1-0", pools.released(POOL))
    assert log.offered() == [uuid(0), uuid(1)]


def test_no_pool_takes_a_card_of_a_labelled_node_and_its_condition_says_why() -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    log.record(POOL, pools.pool(approval="automatic"))
    log.record("n1-0", pools.marked("whole"))
    assignments = log.pools.state.assignment.rows  # type: ignore[attr-defined]
    assert {row.reason for row in assignments.values()} == {"LeftToSharing"}
    assert all(row.pool is None for row in assignments.values())
    log.record("n1", UNLABELLED)
    assert assignments["n1-0"].pool == POOL
    assert log.offered() == []


def test_a_card_that_a_dra_driver_publishes_is_that_drivers() -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    log.record("slice-1", published(uuid(1)))
    assert log.offered() == [uuid(0)]
    assert (log.offer().not_shared[0].owner, log.reasons()) == ("dra", {uuid(1): "PublishedForDRA"})
    log.record("slice-1", WITHDRAWN)
    assert log.offered() == [uuid(0), uuid(1)]


@pytest.mark.parametrize(
    ("subject", "data", "reason"),
    [
        ("n1-0", pools.described(hardware(0), ignored=True), "IgnoredByLabel"),
        ("n1-0", pools.described(hardware(0), managed=False), "NodeNotManaged"),
        ("n1-0", pools.described(hardware(0, memory_mib=None)), "NotIdentified"),
        ("n1", observed(card(0, mig_enabled=True), card(1)), "MIGEnabled"),
    ],
)
def test_what_is_left_out_has_a_reason(subject: str, data: Any, reason: str) -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    log.record(subject, data)
    assert log.offered() == [uuid(1)]
    assert log.reasons() == {uuid(0): reason}


@pytest.mark.parametrize(
    ("subject", "data"),
    [
        ("n1-0", pools.state("Faulted")),
        ("n1-0", pools.described(hardware(0), missing=True)),
        ("n1", observed(card(0, uuid=None), card(1))),
        ("n1", observed(card(1))),
    ],
)
def test_a_card_that_is_not_fit_stays_and_counts_nothing(subject: str, data: Any) -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    log.record(subject, data)
    assert [(one.id, one.healthy) for one in log.offer().devices] == [(uuid(0), False), (uuid(1), True)]
    assert totals(log.offer().devices)["gpu-core"] == 100


def test_minors_are_the_drivers_and_stay_while_it_is_silent() -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    log.record("n1", observed(card(0, minor=7), card(1, minor=3)))
    minors = [(one.minor, one.id) for one in log.offer().devices]
    assert minors == [(3, uuid(1)), (7, uuid(0))]
    log.record("n1", observed(card(0, uuid=None), card(1, uuid=None)))
    assert [(one.minor, one.id) for one in log.offer().devices] == minors


def test_topology_and_model_of_the_board() -> None:
    log = OfferingLog().begin()
    path = ("0000:14:01.0", "0000:15:00.0", "0000:16:00.0")
    log.record("n1", labelled())
    log.record("n1", observed(card(0, numa_node=1, socket=0, pci_path=path, module_id=4), card(1)))
    first, second = log.offer().devices
    assert first.topology is not None
    assert first.topology.model_dump() == {"socket": 0, "numa": 1, "pcie": path[1], "bus_id": address(0)}
    assert (first.module_id, second.topology) == (4, None)


@pytest.mark.parametrize(
    ("path", "switch"),
    [
        (("0000:14:01.0", "0000:15:00.0", "0000:16:00.0"), "0000:15:00.0"),
        (("0000:14:01.0", "0000:15:00.0", "0000:16:01.0"), "0000:15:00.0"),
        (("0000:14:01.0",), "0000:14:01.0"),
        ((), "0000:17:00.0"),
    ],
)
def test_a_switch_is_known_by_its_upstream_port(path: tuple[str, ...], switch: str) -> None:
    assert switch_of(path, "0000:17:00.0") == switch


def test_nics_are_devices_of_their_own() -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    functions = ("0000:30:00.1", "0000:30:00.2")
    fit = Nic(name="mlx5_1", pci_address="0000:30:00.0", active=True, numa_node=0, functions=functions)
    log.record("n1", nics(fit, Nic(name="mlx5_0", pci_address="0000:20:00.0", active=False)))
    found = [one for one in log.offer().devices if one.type == "rdma"]
    assert [(one.minor, one.id, one.healthy) for one in found] == [
        (0, "0000:20:00.0", False),
        (1, "0000:30:00.0", True),
    ]
    assert [vf.bus_id for group in found[1].function_groups for vf in group.functions] == list(functions)
    assert totals(log.offer().devices)["rdma"] == 100


def test_a_card_that_was_withdrawn_is_gone() -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    log.record("n1-0", DeviceWithdrawn())
    assert log.offered() == [uuid(1)]
    assert log.reasons() == {}


def test_what_an_agent_observed_of_a_node_that_is_gone_counts_no_more() -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    log.record("n1", NodeGone(uid="u1"))
    assert not any(one.healthy for one in log.offer().devices)
    log.record("n1", observed(card(0), card(1)), at=1)
    assert not any(one.healthy for one in log.offer().devices), "it is older than the end of the Node"


def fpga(minor: int, *, healthy: bool = True, **other: Any) -> SharedDevice:
    given = {"type": "fpga", "minor": minor, "id": f"f{minor}", "healthy": healthy, "resources": {"fpga": 100}, **other}
    return SharedDevice.model_validate(given)


def test_declared_devices_are_offered_as_they_are_beside_the_cards() -> None:
    log = OfferingLog().begin()
    log.record("n1", declaring(fpga(1, healthy=False), fpga(0)))
    assert not any(isinstance(one.data, NodeDevicesShared) for one in log.events), "the node has no label"
    log.record("n1", labelled())
    assert log.offered() == [uuid(0), uuid(1), "f0", "f1"]
    assert [one.healthy for one in log.offer().devices] == [True, True, True, False]
    assert totals(log.offer().devices)["fpga"] == 100
    assert offers(log.record("n1", declaring(fpga(0), fpga(1, healthy=False)))) == 0, "their order says nothing"
    assert offers(log.record("n1", declaring(fpga(0), fpga(1)))) == 1
    log.record("n1", declaring())
    assert log.offered() == [uuid(0), uuid(1)]


def test_declared_devices_need_no_word_of_pools() -> None:
    log = OfferingLog().begin()
    log.record("n1", declaring(fpga(0)))
    log.append("n1", labelled())
    while log.step("sharing"):
        pass
    assert log.offered() == ["f0"]


def test_what_agents_find_themselves_cannot_be_declared() -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    log.record("n1", declaring(fpga(9, type="gpu"), fpga(9, type="rdma"), fpga(9, resources={"gpu-core": 100})))
    assert log.offered() == [uuid(0), uuid(1)]


def test_late_facts_about_declared_devices_do_not_count_and_they_go_with_their_node() -> None:
    log = OfferingLog().begin()
    log.record("n1", labelled())
    log.record("n1", declaring(fpga(0)), at=50)
    log.record("n1", declaring(), at=40)
    assert log.offered() == [uuid(0), uuid(1), "f0"]
    log.record("n1", NodeGone(), at=60)
    assert "f0" not in log.offered()
    log.record("n1", declaring(fpga(1)), at=70)
    assert "f1" in log.offered()
