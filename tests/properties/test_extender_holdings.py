"""Whatever is chosen, recorded, released and seen in whatever order: no device is oversold, and none stays taken."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.sharing import Strategy
from gpuledger.domain.fact import Fact
from gpuledger.domain.sharing.model import Allocation, PodRequest, Refusal
from gpuledger.domain.sharing.requests import request_of
from gpuledger.edge.extender.holdings import Holdings
from gpuledger.edge.extender.node_shares import recorded
from gpuledger.edge.extender.state import ExtenderProjection, ExtenderState
from gpuledger.events.envelope import Event
from gpuledger.events.node import NodeGone
from gpuledger.events.sharing import (
    NodeDevicesShared,
    PodDevicesBound,
    PodDevicesReleased,
    PodDevicesReserved,
    PodSharingGone,
    PodSharingObserved,
)
from support.events import hour
from support.extending import gpu
from support.thoroughness import examples

NODES = {"n1": 2, "n2": 1}
ACTS = ("choose", "choose", "record", "drop", "bound", "released", "gone", "observed", "sick", "lost", "lost")
"""What comes twice is drawn more often: it takes several of these in a row to find most mistakes."""

Step = tuple[str, int, str, int]

steps = st.lists(
    st.tuples(st.sampled_from(ACTS), st.integers(0, 2), st.sampled_from(sorted(NODES)), st.sampled_from([30, 60])),
    min_size=20,
    max_size=60,
)


class World:
    """An extender's memory, and what is recorded of it."""

    def __init__(self) -> None:
        self._state = ExtenderState()
        self._number = 0
        self._chosen: dict[str, tuple[str, Allocation]] = {}
        self._reserved: dict[str, str] = {}
        self.holdings = Holdings(self._state)
        for node in NODES:
            self._share(node)

    def step(self, act: str, pod: int, node: str, percent: int) -> None:
        """Do one thing, where it is possible."""
        uid = f"u{pod}"
        match act:
            case "choose" if uid not in self._chosen and uid not in self._reserved:
                self._choose(uid, node, percent)
            case "record" if uid in self._chosen:
                where, allocation = self._chosen.pop(uid)
                self._reserved[uid] = where
                data = PodDevicesReserved(uid=uid, node=where, allocation=recorded(allocation), strategy="x")
                self._fold(f"ns/{uid}", data)
                self.holdings.forget(uid)
            case "drop" if uid in self._chosen:
                del self._chosen[uid]
                self.holdings.forget(uid)
            case "bound" if uid in self._reserved:
                self._fold(f"ns/{uid}", PodDevicesBound(uid=uid, node=self._reserved[uid]))
            case "released" if uid in self._reserved:
                self._fold(f"ns/{uid}", PodDevicesReleased(uid=uid, node=self._reserved.pop(uid), reason="x"))
            case "gone" if uid in self._reserved:
                del self._reserved[uid]
                self._fold(f"ns/{uid}", PodSharingGone(uid=uid))
            case "observed":
                self._fold(f"ns/{uid}", PodSharingObserved(uid=uid))
            case "sick":
                self._share(node, healthy=False)
            case "lost":
                self._fold(node, NodeGone())
                self._share(node)

    def settle(self) -> None:
        """All that is under way ends, and all pods with it."""
        for uid in list(self._chosen):
            self.step("drop", int(uid[1:]), "n1", 0)
        for uid in list(self._reserved):
            self.step("gone", int(uid[1:]), "n1", 0)
        for node in NODES:
            self._share(node)

    def check(self) -> None:
        """Nothing is oversold."""
        for node in self.holdings.nodes.values():
            for kind, devices in node.devices.items():
                for minor, device in devices.items():
                    used = node.used.get(kind, {}).get(minor, {})
                    assert all(amount <= device.resources[name] for name, amount in used.items()), (node.name, used)

    def _choose(self, uid: str, node: str, percent: int) -> None:
        request = request_of({"gpu": percent})
        assert isinstance(request, PodRequest)
        found = self.holdings.choose(uid, node, request, Strategy.MOST_ALLOCATED)
        if not isinstance(found, Refusal):
            self._chosen[uid] = (node, found)

    def _share(self, node: str, *, healthy: bool = True) -> None:
        devices = tuple(gpu(node, minor, healthy=healthy or minor > 0) for minor in range(NODES[node]))
        self._fold(node, NodeDevicesShared(devices=devices))

    def _fold(self, subject: str, data: Any) -> None:
        """Record something, which the extender follows at once."""
        self._number += 1
        event = Event(
            f"e{self._number}", "/services/x", data.TYPE, subject, hour(self._number), data, "e", self._number
        )
        ExtenderProjection.handlers[type(data)](self._state, Fact(event, self._number, 0), data)
        self.holdings.refresh()


@examples(4)
@given(steps)
def test_nothing_is_oversold_and_nothing_stays_taken(taken: Sequence[Step]) -> None:
    world = World()
    for one in taken:
        world.step(*one)
        world.check()
    world.settle()
    world.check()
    for node in world.holdings.nodes.values():
        assert node.holders == {}, node.name
