"""The agent's metrics of units agree with the lists that its kubelet gets."""

from collections.abc import Mapping

from gpuledger.agent.board import Board, ResourceOffer
from gpuledger.agent.hardware.api import Survey, Unregistered
from gpuledger.agent.metrics import AgentMetrics
from gpuledger.agent.plugin.service import PluginCounts
from support.agent_metrics import EmptyOutbox
from support.kubelet_parts import address, card, whole_cards

POOL = "gpu.deckhouse.io/a"


def units(board: Board) -> Mapping[str, float]:
    """How many units there are of each health."""
    metrics = AgentMetrics(board, EmptyOutbox(), PluginCounts()).collect()
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
    metrics = AgentMetrics(board, EmptyOutbox(), PluginCounts()).collect()
    (family,) = (family for family in metrics if family.name == "gpuledger_agent_card_events_unregistered")
    found = {(sample.labels["address"], sample.labels["reason"]): sample.value for sample in family.samples}
    assert found == {(address(0), "Refused"): 1.0, (address(1), "NotSupported"): 1.0}
