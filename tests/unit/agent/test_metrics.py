"""The agent's metrics of units agree with the lists that its kubelet gets."""

from collections.abc import Mapping

from gpuledger.agent.board import Board, ResourceOffer
from gpuledger.agent.gateway.service import ReportCounts
from gpuledger.agent.hardware.api import Survey, Unread, Unregistered
from gpuledger.agent.held_units import CLAIM_LABELS, HOLDER_LABELS, held_claim_devices, held_units
from gpuledger.agent.metrics import AgentMetrics
from gpuledger.agent.plugin.service import PluginCounts
from gpuledger.domain.mig.geometry import Instance
from gpuledger.events.allocation import AllocatedClaim, AllocatedDevices, AllocationObserved
from support.agent_metrics import EmptyOutbox
from support.kubelet_parts import address, card, whole_cards

POOL = "gpu.deckhouse.io/a"


def units(board: Board) -> Mapping[str, float]:
    """How many units there are of each health."""
    metrics = AgentMetrics(board, EmptyOutbox(), PluginCounts(), ReportCounts()).collect()
    samples = [sample for family in metrics for sample in family.samples if sample.name == "gpuledger_agent_units"]
    assert {sample.labels["resource"] for sample in samples} == {POOL}
    return {sample.labels["health"]: sample.value for sample in samples}


def test_units_are_healthy_in_metrics_where_the_kubelet_is_reported_that_they_are() -> None:
    board = Board()
    board.put(survey=Survey((card(0), card(1))), offers=(ResourceOffer(POOL, whole_cards(0, 1, 2)),))
    assert units(board) == {"Unhealthy": 3}, "nobody has looked at them yet"
    board.put(unfit={})
    assert units(board) == {"Healthy": 2, "Unhealthy": 1}, "one is not there"
    board.put(unfit={address(0): "xid"})
    assert units(board) == {"Healthy": 1, "Unhealthy": 2}


def test_ids_that_no_kubelet_takes_are_no_units() -> None:
    board = Board()
    too_long = whole_cards(1)[0]._replace(id="x" * 64)
    board.put(survey=Survey((card(0), card(1))), unfit={}, offers=(ResourceOffer(POOL, (*whole_cards(0), too_long)),))
    assert units(board) == {"Healthy": 1}


def test_cards_whose_errors_do_not_reach_the_agent_are_measured() -> None:
    board = Board()
    board.put(unregistered={address(0): Unregistered("Refused", "no"), address(1): Unregistered("NotSupported", "no")})
    metrics = AgentMetrics(board, EmptyOutbox(), PluginCounts(), ReportCounts()).collect()
    (family,) = (family for family in metrics if family.name == "gpuledger_agent_card_events_unregistered")
    found = {(sample.labels["address"], sample.labels["reason"]): sample.value for sample in family.samples}
    assert found == {(address(0), "Refused"): 1.0, (address(1), "NotSupported"): 1.0}


def test_readings_that_the_driver_fails_to_give_are_measured() -> None:
    board = Board()
    board.put(unread={address(0): (Unread("remap_failed", "no"), Unread("remap_pending", "no"))})
    metrics = AgentMetrics(board, EmptyOutbox(), PluginCounts(), ReportCounts()).collect()
    (family,) = (family for family in metrics if family.name == "gpuledger_agent_card_reading_failed")
    found = {(sample.labels["address"], sample.labels["reading"]): sample.value for sample in family.samples}
    assert found == {(address(0), "remap_failed"): 1.0, (address(0), "remap_pending"): 1.0}


def allocation(pod: str, *units: str) -> AllocationObserved:
    held = (AllocatedDevices(resource=POOL, devices=units),)
    return AllocationObserved(node="w1", namespace="ml", pod=pod, container="train", resources=held)


def test_a_container_holds_cards_instances_and_slices_as_the_exporter_names_them() -> None:
    board = Board()
    instances = (Instance("MIG-a", "1g.10gb", 0, 1, gpu_instance=7), Instance("MIG-b", "1g.10gb", 1, 1))
    board.put(
        survey=Survey((card(0), card(1, instances=instances), card(2)._replace(uuid=None))),
        allocations=(allocation("whole", "GPU-0"), allocation("parts", "MIG-a", "MIG-b"), allocation("gone", "GPU-9")),
    )
    assert held_units(board.state) == {
        ("GPU-0", "", "ml", "whole", "train", POOL): 1,
        ("GPU-1", "7", "ml", "parts", "train", POOL): 1,
    }
    board.put(allocations=(allocation("shares", "GPU-0::0", "GPU-0::3"), allocation("also", "GPU-0::1")))
    assert [(holder.pod, count) for holder, count in held_units(board.state).items()] == [("shares", 2), ("also", 1)]


def test_nothing_is_held_before_the_cards_are_found_and_where_a_claim_names_the_device() -> None:
    board = Board()
    board.put(allocations=(allocation("whole", "GPU-0"),))
    assert held_units(board.state) == {}
    claims = (AllocatedClaim(claim="c", driver="gpu.nvidia.com", pool="w1", device="gpu-0"),)
    by_claim = AllocationObserved(node="w1", namespace="ml", pod="dra", container="train", claims=claims)
    board.put(survey=Survey((card(0),)), allocations=(by_claim,))
    assert held_units(board.state) == {}
    assert held_claim_devices(board.state) == [("ml", "dra", "train", "c", "gpu.nvidia.com", "w1", "gpu-0")]
    families = AgentMetrics(board, EmptyOutbox(), PluginCounts(), ReportCounts()).collect()
    (sample,) = [one for family in families for one in family.samples if "held_claim" in one.name]
    expected = ("ml", "dra", "train", "c", "gpu.nvidia.com", "w1", "gpu-0")
    assert (sample.name, sample.value) == ("gpuledger_agent_held_claim_devices", 1.0)
    assert sample.labels == dict(zip(CLAIM_LABELS, expected, strict=True))


def test_held_units_are_served_with_the_labels_of_their_holder() -> None:
    board = Board()
    board.put(survey=Survey((card(0),)), allocations=(allocation("whole", "GPU-0"),))
    families = AgentMetrics(board, EmptyOutbox(), PluginCounts(), ReportCounts()).collect()
    (sample,) = [one for family in families for one in family.samples if one.name == "gpuledger_agent_held_units"]
    assert sample.labels == dict(zip(HOLDER_LABELS, ("GPU-0", "", "ml", "whole", "train", POOL), strict=True))
    assert sample.value == 1.0
