"""The fold of the extender: open reservations, choices that are not recorded yet, and what is left of pods gone."""

from dataclasses import dataclass, field
from typing import Any

from gpuledger.api.sharing import Strategy
from gpuledger.domain.fact import Fact, changed_rows
from gpuledger.domain.sharing.model import PodRequest, Refusal
from gpuledger.domain.sharing.requests import request_of
from gpuledger.domain.sharing.state import GONE_PODS_MAX
from gpuledger.edge.extender.holdings import Holdings
from gpuledger.edge.extender.node_shares import recorded
from gpuledger.edge.extender.state import ExtenderProjection, ExtenderState
from gpuledger.events.envelope import Event
from gpuledger.events.sharing import (
    AllocatedDevice,
    Allocation,
    NodeDevicesShared,
    PodDevicesBound,
    PodDevicesReleased,
    PodDevicesReserved,
    PodSharingGone,
    PodSharingObserved,
)
from support.events import hour
from support.extending import gpu

HALF: Allocation = {"gpu": (AllocatedDevice(minor=0, resources={"gpu-core": 50, "gpu-memory-ratio": 50}),)}


@dataclass
class Folding:
    state: ExtenderState = field(default_factory=ExtenderState)
    number: int = 0

    def fold(self, subject: str, data: Any) -> None:
        self.number += 1
        event = Event(f"e{self.number}", "/services/x", data.TYPE, subject, hour(self.number), data, "e", self.number)
        ExtenderProjection.handlers[type(data)](self.state, Fact(event, self.number, 0), data)

    def share(self, node: str = "n1", cards: int = 1) -> None:
        self.fold(node, NodeDevicesShared(devices=tuple(gpu(node, minor) for minor in range(cards))))

    def reserve(self, name: str, node: str = "n1") -> None:
        self.fold(f"ns/{name}", PodDevicesReserved(uid=name, node=node, allocation=HALF, strategy="x"))


def request(percent: int) -> PodRequest:
    found = request_of({"gpu": percent})
    assert isinstance(found, PodRequest)
    return found


def test_a_reservation_is_open_until_its_outcome_or_the_end_of_its_pod() -> None:
    folding = Folding()
    for name in ("bound", "released", "gone", "open"):
        folding.reserve(name)
    folding.fold("ns/bound", PodDevicesBound(uid="bound", node="n1"))
    folding.fold("ns/released", PodDevicesReleased(uid="released", node="n1", reason="x"))
    folding.fold("ns/gone", PodSharingGone(uid="gone"))
    folding.fold("ns/open", PodSharingObserved(uid="open"))
    assert list(folding.state.open_reservation.rows) == ["open"]
    found = folding.state.open("open")
    assert found is not None
    assert (found.pod, found.node, found.event, found.correlation) == ("ns/open", "n1", "e4", "e4")


def test_what_is_chosen_counts_at_once_and_is_forgotten_or_replaced_by_the_ledger() -> None:
    folding = Folding()
    folding.share()
    holdings = Holdings(folding.state)
    strategy = Strategy.LEAST_ALLOCATED
    chosen = holdings.choose("a", "n1", request(60), strategy)
    assert not isinstance(chosen, Refusal)
    assert chosen["gpu"][0].id == "GPU-n1-0"
    assert isinstance(holdings.choose("b", "n1", request(60), strategy), Refusal)
    folding.fold("ns/a", PodSharingObserved(uid="a"))
    holdings.refresh()
    assert isinstance(holdings.choose("b", "n1", request(60), strategy), Refusal), "the pod is seen, and not bound"
    folding.share()
    holdings.refresh()
    assert isinstance(holdings.choose("b", "n1", request(60), strategy), Refusal), "the node reports again"
    holdings.forget("a")
    again = holdings.choose("b", "n1", request(60), strategy)
    assert not isinstance(again, Refusal)
    reserved = PodDevicesReserved(uid="b", node="n1", allocation=recorded(again), strategy="x")
    folding.fold("ns/b", reserved)
    holdings.refresh()
    holdings.forget("b")
    assert isinstance(holdings.choose("a", "n1", request(60), strategy), Refusal)
    assert isinstance(holdings.choose("a", "other", request(60), strategy), Refusal)


def test_what_two_processes_reserve_is_seen_to_be_too_much() -> None:
    folding = Folding()
    folding.share()
    holdings = Holdings(folding.state)
    for name in ("a", "b"):
        folding.reserve(name)
    holdings.refresh()
    allocation = holdings.allocation("b")
    assert not holdings.is_oversold("n1", allocation)
    folding.reserve("c")
    holdings.refresh()
    assert holdings.is_oversold("n1", allocation)
    folding.fold("ns/a", PodSharingGone(uid="a"))
    folding.fold("n1", NodeDevicesShared(devices=(gpu("n1", 0, healthy=False),)))
    holdings.refresh()
    assert holdings.is_oversold("n1", allocation), "the card is unhealthy"
    assert holdings.is_oversold("n2", allocation), "the node is gone"


def test_a_pod_is_in_flight_until_it_has_started_or_for_so_long() -> None:
    folding = Folding()
    folding.share()
    holdings = Holdings(folding.state)
    assert holdings.in_flight("n1", "x", hour(0)) is None
    folding.reserve("a")
    folding.fold("ns/a", PodDevicesBound(uid="a", node="n1"))
    holdings.refresh()
    assert holdings.in_flight("n1", "x", hour(0)) == "ns/a"
    assert holdings.in_flight("n1", "a", hour(0)) is None, "itself"
    assert holdings.in_flight("n1", "x", hour(50)) is None, "too long ago"
    folding.fold("ns/a", PodSharingObserved(uid="a", node="n1", allocation=HALF, started=True))
    holdings.refresh()
    assert holdings.in_flight("n1", "x", hour(0)) is None
    assert holdings.in_flight("none", "x", hour(0)) is None


def test_of_pods_that_are_gone_only_the_last_ones_take_memory() -> None:
    folding = Folding()
    folding.share()
    holdings = Holdings(folding.state)
    for number in range(GONE_PODS_MAX + 100):
        folding.reserve(str(number))
        folding.fold(f"ns/{number}", PodSharingGone(uid=str(number)))
        holdings.refresh()
    assert len(folding.state.sharing.shared_pod) == GONE_PODS_MAX
    assert changed_rows(folding.state) == 0
    assert holdings.nodes["n1"].holders == {}
